package intake_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// A self-alert is not sent through what it is about while something else is routed; what is routed otherwise plays no part.
func TestSelfAlertAvoidsWhatItIsAbout(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		routed, avoid []string
		want          []string
	}{
		{"nothing to avoid", []string{"ops-slack", "audit"}, nil, []string{"audit", "ops-slack"}},
		{"another is there", []string{"ops-slack", "audit"}, []string{"ops-slack", "slack-dm"}, []string{"audit"}},
		{"not routed through it", []string{"audit"}, []string{"ops-slack", "slack-dm"}, []string{"audit"}},
		{"nothing else is there", []string{"ops-slack"}, []string{"ops-slack", "slack-dm"}, []string{"ops-slack"}},
		{"all are to be avoided", []string{"ops-slack", "audit"}, []string{"audit", "ops-slack"}, []string{"audit", "ops-slack"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, func(f *config.File) {
				f.Routes = []config.Route{{Match: pattern(t, "alert.*.*._tocsin"), Notify: c.routed}}
			})
			var r intake.Result
			raise := func() {
				t.Helper()
				w.tx(func(tx *store.Tx) error {
					var err error
					r, err = w.in.SelfAlert(t.Context(), tx, intake.Self{Kind: intake.SelfNotifierBroken, Criticality: "critical", About: "ops-slack", Title: "Broken", Avoid: c.avoid})
					return err
				})
			}
			through := func() []string {
				var names []string
				for _, d := range w.deliveries(r.IncidentID) {
					if !slices.Contains(names, d.Notifier) {
						names = append(names, d.Notifier)
					}
				}
				slices.Sort(names)
				return names
			}
			raise()
			if diff := cmp.Diff(c.want, through()); diff != "" {
				t.Error(diff)
			}
			raise() // found once more: nobody joins
			if diff := cmp.Diff(c.want, through()); diff != "" {
				t.Errorf("once more: %s", diff)
			}
		})
	}
}
