package slack_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/provider"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack"
)

// A refusal whose body breaks off says nothing that can be read: it is unknown, and no fault of the address.
func TestRefusalThatBreaksOffIsUnknown(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"ok":false,"err`))
	}))
	t.Cleanup(s.Close)
	for name, n := range map[string]config.Notifier{
		"Web API": {Name: "api", Token: "xoxb-1", APIURL: s.URL + "/api/"},
		"webhook": {Name: "hook", WebhookURL: s.URL + "/services/T0/B0/x"},
	} {
		p, err := slack.New(n, nil)
		if err != nil {
			t.Fatal(err)
		}
		res := p.Do(t.Context(), provider.Call{Operation: delivery.OpCreate, Address: "C0OPS", Key: "key-1", Message: openCard()})
		if res.Outcome != delivery.OutcomeUnknown || res.Fault != delivery.FaultNone || res.HTTPStatus != http.StatusBadRequest {
			t.Errorf("%s: %+v", name, res)
		}
	}
}
