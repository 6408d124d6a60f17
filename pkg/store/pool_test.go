package store_test

import (
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/nettest"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// pgx tries an address with TLS and without. What it then says twice is told once, on one line.
func TestUnreachableIsOneSentence(t *testing.T) {
	err := store.Migrate(t.Context(), "postgres://tocsin:hidden@"+nettest.Refused(t)+"/tocsin")
	if err == nil {
		t.Fatal("a database where none is")
	}
	if s := err.Error(); strings.Contains(s, "\n") || strings.Count(s, "connection refused") != 1 || strings.Contains(s, "hidden") {
		t.Errorf("what is said of a database that is not there: %q", s)
	}
}
