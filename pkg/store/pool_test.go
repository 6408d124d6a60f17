package store_test

import (
	"net"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// pgx tries an address with TLS and without. What it then says twice is told once, on one line.
func TestUnreachableIsOneSentence(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	err = store.Migrate(t.Context(), "postgres://tocsin:hidden@"+addr+"/tocsin")
	if err == nil {
		t.Fatal("a database where none is")
	}
	if s := err.Error(); strings.Contains(s, "\n") || strings.Count(s, "connection refused") != 1 || strings.Contains(s, "hidden") {
		t.Errorf("what is said of a database that is not there: %q", s)
	}
}
