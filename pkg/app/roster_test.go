package app

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// The view and the metric go by overrides, at once and not only when the roster is next written in its time.
func TestOnCallNowGoesByOverrides(t *testing.T) {
	t.Parallel()
	url := storetest.New(t)
	e, err := StartDev(t.Context(), DevOptions{Dir: t.TempDir(), Database: url, AnyPorts: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	c, err := client.New(e.URL(), e.Token)
	if err != nil {
		t.Fatal(err)
	}
	shows := func(want string) {
		t.Helper()
		eventually(t, "oncall_now shows "+want, func() bool {
			return one[string](t, url, "select coalesce(string_agg(user_id || ' ' || layer, ', '), '') from oncall_now where schedule = 'primary'") == want
		})
	}
	shift, err := c.Shifts(within(t), "primary", client.Span{})
	if err != nil || len(shift.Items) == 0 {
		t.Fatal(shift, err)
	}
	usual := shift.Items[0].User + " " + shift.Items[0].Layer
	shows(usual)
	other := map[string]string{"ana": "bo", "bo": "ana"}[shift.Items[0].User]
	o, err := c.AddOverride(within(t), "primary", api.NewOverride{User: other, For: "2h", Reason: "lunch"})
	if err != nil {
		t.Fatal(err)
	}
	shows(other + " override")
	if _, err := c.EndOverride(within(t), "primary", o.ID, ""); err != nil {
		t.Fatal(err)
	}
	shows(usual)
	if text := fetch(t, "http://"+e.Replicas[0].MetricsAddr()+"/metrics", http.StatusOK); !strings.Contains(text, "\ntocsin_oncall_gaps 0\n") {
		t.Error("tocsin_oncall_gaps is not 0")
	}
}
