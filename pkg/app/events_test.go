package app

import (
	"context"
	"errors"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// A14 with whole replicas: who listens at one hears what another takes, at once, also with no route; and a replica that stops says so.
func TestListenersHearOtherReplicas(t *testing.T) {
	t.Parallel()
	db := storetest.New(t)
	const rest = "notifiers: {}\nroutes: []\n"
	one, two := serveFile(t, db, rest), serveFile(t, db, rest)
	heard := make(chan api.LiveEvent, 100)
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	listener, err := client.New(two.base, "")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		ended <- listener.Listen(ctx, []string{"alert.failed.#"}, 0, func(e api.LiveEvent) error {
			heard <- e
			return nil
		})
	}()
	c, err := client.New(one.base, "")
	if err != nil {
		t.Fatal(err)
	}
	// Until the stream is open, what is sent is not for it.
	var first api.LiveEvent
	eventually(t, "the listener hears", func() bool {
		if _, err := c.SendAlert(t.Context(), api.Alert{Kind: "failed", Criticality: "critical", Job: "load", Key: "k", Title: "T"}, ""); err != nil {
			t.Fatal(err)
		}
		select {
		case first = <-heard:
			return true
		default:
			return false
		}
	})
	if first.Topic != "alert.failed.critical.load" {
		t.Errorf("heard %+v", first)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the stream ended with %v", err)
	}
}
