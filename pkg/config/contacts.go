package config

import (
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// quietHours reads when a person is left alone by what is not urgent: hours alone, or a part of the week. The wall clock is
// that of the person's own zone, unless it names another.
func quietHours(o *object, zone *time.Location) *oncall.Window {
	v := o.get("quiet_hours")
	const how = `write quiet_hours: "22:00-07:00", or quiet_hours: {days: [mon-fri], hours: "22:00-07:00"}`
	w, bounded := oncall.Window{Days: everyDay}, true
	switch {
	case !v.present():
		return nil
	case v.null():
		v.problem(how+", or remove it", "quiet_hours has no value")
		return nil
	case kindOf(v.node) == "a mapping":
		if o := v.object(); o != nil {
			w = window(o, zone, "quiet_hours bounds nothing")
			bounded = o.has("days") || o.has("hours")
		}
	case kindOf(v.node) == "a list":
		v.problem(how, "quiet_hours must be a span of the day or a mapping, it is a list")
		return nil
	default:
		s, ok := v.text()
		if !ok {
			return nil
		}
		var err error
		if w.From, w.Until, err = oncall.ParseHours(s); err != nil {
			v.problem("", "%v", err)
			return nil
		}
	}
	if w.Zone == nil {
		if w.Zone = zone; zone == nil && !o.has("time_zone") {
			v.problem("give the person a time_zone, for example Europe/Berlin", "quiet_hours are a wall clock, and nothing says of which zone")
		}
	}
	if w.Days == everyDay && w.From == 0 && w.Until == 24*60 && bounded {
		v.problem("leave some time in which what is not urgent may come", "quiet_hours never end")
	}
	return &w
}
