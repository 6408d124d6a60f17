package intake

import (
	"fmt"
	"maps"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// An alert with more labels than are kept is the same alert the next time: its key is made of the labels.
func TestOfTooManyLabelsTheSameOnesAreKept(t *testing.T) {
	t.Parallel()
	labels := map[string]string{}
	for n := range MaxLabels + 100 {
		labels[fmt.Sprintf("label_%03d", n)] = "x"
	}
	var kept map[string]string
	for range 20 {
		a, wrong := checkAlert(&config.File{}, plan.Alert{Kind: "disk", Labels: labels}, true)
		if wrong != nil {
			t.Fatal(wrong)
		}
		if len(a.Labels) != MaxLabels {
			t.Fatalf("%d labels are kept", len(a.Labels))
		}
		if kept != nil && !maps.Equal(kept, a.Labels) {
			t.Fatal("another time other labels are kept")
		}
		kept = a.Labels
	}
}
