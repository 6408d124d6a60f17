package app

import (
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/store"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// Doctor says how it stands with imported calendars, from what the replicas have found, and shows none of their addresses.
func TestDoctorOfImportedCalendars(t *testing.T) {
	t.Parallel()
	url := storetest.New(t)
	s, err := store.Open(t.Context(), url, store.Options{MaxConnections: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := &patient{t: t, url: url, env: map[string]string{"ROTA": "https://calendar.example.com/s3cr3t.ics"}, file: `
users: [{id: ana, name: Ana, email: ana@example.com}]
schedules: [{id: primary, time_zone: UTC, layers: [{name: rota, ical_url: "${ROTA}"}]}]
notifiers: {log: {type: log, path: /x}}
routes: [{match: "#", notify: [log]}]
`}
	p.o.make = known
	look := func() Check {
		t.Helper()
		d, err := p.examine()
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range d.Checks {
			if strings.Contains(c.Text+c.Fix, "s3cr3t") {
				t.Errorf("the address is in %+v", c)
			}
		}
		return find(t, d, "calendars", "primary rota")
	}
	if c := look(); c.Level != provider.Warn || !strings.Contains(c.Text, "not fetched yet") || c.Fix != "start serve, which fetches it" {
		t.Errorf("%+v", c)
	}
	f, _, err := config.Load(p.o.Path, p.o.Env)
	if err != nil {
		t.Fatal(err)
	}
	fetched := func(put func(*store.Tx, store.Fetch) (bool, error)) {
		t.Helper()
		ids := []string{f.Schedules[0].Layers[0].Calendar}
		if err := s.InTx(t.Context(), func(tx *store.Tx) error {
			if err := tx.ListCalendars(t.Context(), ids); err != nil {
				return err
			}
			all, err := tx.ClaimCalendars(t.Context(), ids, time.Minute, 1)
			if err == nil {
				_, err = put(tx, all[0])
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	fetched(func(tx *store.Tx, d store.Fetch) (bool, error) {
		return tx.CalendarFailed(t.Context(), d, "calendar.example.com answered 404", 0)
	})
	if c := look(); c.Level != provider.Warn || !strings.Contains(c.Text, "calendar.example.com answered 404") || c.Fix == "" {
		t.Errorf("%+v", c)
	}
	fetched(func(tx *store.Tx, d store.Fetch) (bool, error) {
		return tx.PutCalendar(t.Context(), d, &oncall.Calendar{}, 0)
	})
	if c := look(); c.Level != provider.OK || !strings.HasPrefix(c.Text, "fetched ") {
		t.Errorf("%+v", c)
	}
	now := time.Now()
	fetched(func(tx *store.Tx, d store.Fetch) (bool, error) {
		return tx.PutCalendar(t.Context(), d, &oncall.Calendar{Events: []oncall.Event{{Start: now, End: now.Add(time.Hour), Summary: "Zoe"}}}, 0)
	})
	if c := look(); c.Level != provider.Warn || !strings.Contains(c.Text, `The event "Zoe"`) {
		t.Errorf("%+v", c)
	}
}
