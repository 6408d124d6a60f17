package api

import (
	"encoding/json"
	"testing"
)

func TestAllows(t *testing.T) {
	t.Parallel()
	allow := func(wanted string, scopes ...string) {
		t.Helper()
		if !Allows(scopes, wanted) {
			t.Errorf("scopes %v do not allow %s", scopes, wanted)
		}
	}
	deny := func(wanted string, scopes ...string) {
		t.Helper()
		if Allows(scopes, wanted) {
			t.Errorf("scopes %v allow %s", scopes, wanted)
		}
	}
	allow(ScopeIngest, ScopeIngest)
	allow(ScopeRead, ScopeOperate)
	for _, s := range Scopes {
		allow(s, ScopeAdmin)
		deny(s)
	}
	deny(ScopeRead, ScopeIngest)
	deny(ScopeIngest, ScopeOperate)
	deny(ScopeOperate, ScopeRead)
	deny(ScopeAdmin, ScopeIngest, ScopeRead, ScopeOperate)
	deny(ScopeRead, "everything")
}

// An empty page is [], which programs can walk, and a last page has no cursor.
func TestEmptyList(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(List[Incident]{Items: []Incident{}})
	if err != nil || string(b) != `{"items":[]}` {
		t.Errorf("got %s, %v", b, err)
	}
}

func TestProblemText(t *testing.T) {
	t.Parallel()
	p := &Problem{Title: "Invalid", Detail: "2 mistakes", Errors: []ProblemItem{{"body.kind", "missing"}, {"", "too long"}}}
	if got, want := p.Error(), "2 mistakes: body.kind: missing; too long"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
