package worker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
)

// strangerSite is a site where nobody knows Ana's account, but her e-mail address.
func strangerSite(t *testing.T) *site {
	t.Helper()
	s := newSite(t, direct("dm"))
	s.accounts = nil
	s.change(func(f *config.File) {
		f.Users = []config.User{{ID: "ana", Name: "Ana", Email: "ana@example.com", Contacts: []config.Contact{{Via: "dm"}}}}
	})
	return s
}

// Where it can't be asked whose account it is, a page is not given up for it: it is asked again a moment later.
func TestAnAccountIsAskedForAgain(t *testing.T) {
	t.Parallel()
	s := strangerSite(t)
	asked := make(chan string, 10)
	s.find = func(_ context.Context, notifier, user string) (bool, error) {
		asked <- notifier + " " + user
		if len(asked) == 1 {
			return false, errors.New("the chat does not answer")
		}
		s.accounts = []plan.Account{{Provider: "slack", AccountID: "U0ANA", UserID: "ana"}}
		return true, nil
	}
	id := s.add(s.incident("a"), aPage("dm", "ana", 0))[0]
	s.exec("update delivery set created_at = clock_timestamp() + interval '1 hour' where id = $1", id) // however busy this machine is
	s.start("first")
	r := s.waitFor(id, delivery.Sent)
	if len(asked) != 2 || <-asked != "dm ana" || s.desk("dm").called(1).Address != "U0ANA" || r.Attempts != 1 {
		t.Errorf("asked %d times, %+v", len(asked), r)
	}
}
