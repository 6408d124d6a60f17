package server_test

import (
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// A parameter that is passed over would choose everything where its sender meant a few.
func TestUnknownParametersAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.refused(422, api.ProblemInvalid, "eye", "GET", "/v1/deliveries?notifer=ops-slack&state=dead&x=1", "")
	if len(p.Errors) != 2 || p.Errors[0].Location != "query.notifer" || !strings.Contains(p.Errors[0].Message, "cursor, incident, kind, limit, notifier, state") || p.Errors[1].Location != "query.x" {
		t.Errorf("%+v", p.Errors)
	}
	w.refused(422, api.ProblemInvalid, "eye", "GET", "/v1/incidents?notifier=x", "")
	w.refused(422, api.ProblemInvalid, "eye", "GET", "/v1/events?topics=x", "")
	w.refused(401, api.ProblemUnauthorized, "", "GET", "/v1/incidents?x=1", "")
	want[api.List[api.Delivery]](w, 200, "eye", "GET", "/v1/deliveries?notifier=ops-slack&kind=card&limit=5", "")
}
