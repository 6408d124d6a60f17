package intake_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// An incident's criticality is the highest that fires, whatever way it came to that: the clever answer, which asks the other
// alerts only when the highest may be gone, against the plain one over all of them.
func TestCriticalityIsTheHighestThatFires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same every time
	words := []string{"critical", "high", "warning", "info", "low", "odd"}
	for round := range 4 {
		// The first alert holds the incident open, so that the others may all end.
		message := func() intake.Group {
			g := intake.Group{Source: "native", Key: fmt.Sprint("round ", round), Alerts: []plan.Alert{
				{Kind: "k", Job: "j", Criticality: "none", Firing: true, Title: "T", Labels: map[string]string{"n": "holds"}},
			}}
			for range 1 + random.IntN(3) {
				g.Alerts = append(g.Alerts, plan.Alert{
					Kind: "k", Job: "j", Criticality: words[random.IntN(len(words))], Firing: random.IntN(3) > 0, Title: "T", Fingerprint: fmt.Sprint(random.IntN(5)),
				})
			}
			return g
		}
		for step := range 40 {
			r := w.accept(message())
			fires := one[[]string](w, "select array_agg(criticality order by criticality) from alert where incident_id = $1 and status = 'firing'", r.IncidentID)
			want := slices.MaxFunc(fires, func(a, b string) int { return plan.Rank(a) - plan.Rank(b) })
			if got := w.incident(r.IncidentID).Criticality; got != want {
				t.Fatalf("round %d, step %d: it is %s while %v fire", round, step, got, fires)
			}
		}
	}
}
