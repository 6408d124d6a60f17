package intake_test

import (
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
)

// A thread lives as long as its incident, and a day longer: then nobody waits for the rest of it any more.
func TestAThreadEndsADayAfterItsIncident(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world, intake.Result){
		"a person's word": func(w *world, r intake.Result) { w.resolve(r.IncidentID) },
		"its source": func(w *world, _ intake.Result) {
			g := disk("critical")
			g.Alerts[0].Firing = false
			w.accept(g)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil)
			r := w.accept(disk("critical"))
			for _, d := range w.deliveries(r.IncidentID, delivery.Thread) {
				if !d.ExpiresAt.IsZero() {
					t.Fatalf("while its incident is open, a thread ends at %s", d.ExpiresAt)
				}
			}
			end(w, r)
			threads := w.deliveries(r.IncidentID, delivery.Thread)
			if len(threads) == 0 {
				t.Fatal("there is no thread")
			}
			closed := *w.incident(r.IncidentID).ResolvedAt
			for _, d := range threads {
				if after := d.ExpiresAt.Sub(closed); after < delivery.ThreadAfter-time.Minute || after > delivery.ThreadAfter+time.Minute {
					t.Errorf("the thread ends %s after its incident", after)
				}
				v := d.Judge(delivery.Facts{Now: d.ExpiresAt, Policy: delivery.DefaultPolicy(delivery.Thread), Resolved: true, Answered: true, CardReady: true, CardOver: true, HasCard: true})
				if v.Step == nil || v.Step.To() != delivery.Expired {
					t.Errorf("after that it is judged %+v", v)
				}
			}
		})
	}
}
