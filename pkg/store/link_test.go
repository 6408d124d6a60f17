package store_test

import (
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// Somebody has a new account: whoever takes the first of theirs takes the one that was linked last, also where an older one is linked again.
func TestTheAccountThatWasLinkedLastComesFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, id := range []string{"501", "502", "501"} {
		s.tx(func(tx *store.Tx) error { return tx.PutAccount(t.Context(), "telegram", id, "ana", "token:ops") })
		all, err := s.Accounts(t.Context())
		if err != nil || all[0].AccountID != id {
			t.Errorf("after %s was linked: %+v, %v", id, all, err)
		}
	}
}
