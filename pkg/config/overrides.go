package config

import (
	"slices"

	"github.com/tocsin-oncall/tocsin/pkg/oncall"
)

// WithOverrides is the file with what the database lays over its schedules, overrides and the shifts of imported calendars: whatever asks it
// who is on call gets the answer that holds. An override that puts somebody on call whom the file does not know any more is passed
// over, for nobody could be reached by it.
func (f *File) WithOverrides(o oncall.Overlay) *File {
	if len(o.Overrides) == 0 && len(o.Calendars) == 0 {
		return f
	}
	g := *f
	g.Schedules = slices.Clone(f.Schedules)
	for i := range g.Schedules {
		s := &g.Schedules[i]
		for _, o := range o.Overrides[s.ID] {
			if _, known := f.User(o.User); known {
				s.Overrides = append(s.Overrides[:len(s.Overrides):len(s.Overrides)], o)
			}
		}
		cloned := false
		for j, layer := range s.Layers {
			if c := o.Calendars[layer.Calendar]; c != nil {
				if !cloned {
					s.Layers, cloned = slices.Clone(s.Layers), true
				}
				s.Layers[j].Turns, _ = f.Imported(layer.Calendar, c)
			}
		}
	}
	return &g
}
