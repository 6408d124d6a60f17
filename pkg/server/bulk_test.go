package server_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

func TestDecisionsOnMany(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, state := range []string{"rejected", "held"} {
		w.settle(w.delivery("page"), state, "x:y", state == "held")
		want[api.List[api.Delivery]](w, 200, "eye", "GET", "/v1/deliveries?state=dead", "")
		w.call("hand", "POST", "/v1/incidents/"+w.open()+"/resolve", "{}")
	}
	// Counted first, with what would be refused; nothing is changed.
	dry := want[api.DecisionRun](w, 200, "hand", "POST", "/v1/decisions", `{"filter": {"reason": "x:y"}, "action": "assume_delivered", "reason": "r", "dry_run": true}`)
	if !dry.DryRun || dry.ID != "" || dry.Total != 2 || dry.Refused != 1 || len(dry.Counts) != 2 {
		t.Errorf("counted: %+v", dry)
	}
	w.refused(403, api.ProblemForbidden, "eye", "POST", "/v1/decisions", `{"filter": {}, "action": "cancel"}`)
	w.refused(422, api.ProblemInvalid, "hand", "POST", "/v1/decisions", `{"filter": {"state": "sent"}, "action": "cancel"}`)
	w.stopping.Store(true)
	w.refused(503, api.ProblemStopping, "hand", "POST", "/v1/decisions", `{"filter": {}, "action": "cancel"}`)
	w.stopping.Store(false)

	made := want[api.DecisionRun](w, 202, "hand", "POST", "/v1/decisions", `{"filter": {"reason": "x:y"}, "action": "cancel", "reason": "over"}`)
	if made.Total != 2 || made.State != api.RunRunning || made.By != "token:hand" || made.PerSecond != 20 || made.Filter.Reason != "x:y" {
		t.Errorf("made: %+v", made)
	}
	l := want[api.List[api.DecisionRun]](w, 200, "eye", "GET", "/v1/decisions?limit=1", "")
	if len(l.Items) != 1 || l.Items[0].ID != made.ID {
		t.Errorf("listed: %+v", l)
	}
	ended := want[api.DecisionRun](w, 200, "hand", "POST", "/v1/decisions/"+made.ID+"/cancel", "")
	if ended.State != api.RunCanceled || ended.CanceledBy != "token:hand" {
		t.Errorf("canceled: %+v", ended)
	}
	w.refused(409, api.ProblemConflict, "hand", "POST", "/v1/decisions/"+made.ID+"/cancel", "")
	w.refused(404, api.ProblemNotFound, "hand", "POST", "/v1/decisions/01980000-0000-7000-8000-000000000000/cancel", "")
}
