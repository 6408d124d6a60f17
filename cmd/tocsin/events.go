package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// listenAgain is how long after a lost stream it is taken up again.
const listenAgain = 2 * time.Second

func (p *program) eventsCommand() *cobra.Command {
	var topics []string
	var last int64
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Hear what happens, as it happens",
		Long: "Prints alerts, incidents, dead deliveries and changes of who is on call as they come, a line each, until you end it. A lost connection\n" +
			"is taken up again where it was lost.",
		Example: "  tocsin events --topic 'alert.*.critical.#' --topic 'oncall.#'",
		Args:    cobra.NoArgs,
		RunE: run(func(cmd *cobra.Command, _ []string) error {
			c, err := p.remote()
			if err != nil {
				return err
			}
			for {
				err := c.Listen(cmd.Context(), topics, last, func(e api.LiveEvent) error {
					if e.ID > 0 {
						last = e.ID
					}
					return p.printEvent(e)
				})
				if cmd.Context().Err() != nil {
					return nil //nolint:nilerr // it was ended by whoever listens
				}
				var refused *api.Problem
				if errors.As(err, &refused) && refused.Status/100 == 4 {
					return err
				}
				fmt.Fprintf(p.err, "The connection was lost: %s\n", printable(fmt.Sprint(err)))
				if !wait(cmd.Context(), listenAgain) {
					return nil
				}
			}
		}),
	}
	cmd.Flags().StringArrayVar(&topics, "topic", nil, "only topics that this pattern takes; may be given several times (default: all)")
	cmd.Flags().Int64Var(&last, "last-id", 0, "begin after the event with this id, as far back as the server keeps them")
	return cmd
}

// wait waits, unless ctx ends before.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// printEvent prints one line. With --json it is the event as it came.
func (p *program) printEvent(e api.LiveEvent) error {
	if p.json {
		enc := json.NewEncoder(p.out)
		enc.SetEscapeHTML(false)
		return enc.Encode(e)
	}
	var what string
	switch {
	case e.Alert != nil:
		what = e.Alert.Status + ": " + e.Alert.Title
	case e.Incident != nil:
		what = e.Incident.ID + " " + e.Incident.Title
	case e.Delivery != nil:
		what = fmt.Sprintf("%s %s through %s to %s: %s (%s)", e.Delivery.ID, e.Delivery.Kind, e.Delivery.Notifier, e.Delivery.Target, e.Delivery.State, e.Delivery.Reason)
	case e.OnCall != nil:
		what = peopleNames(e.OnCall.Before) + " -> " + peopleNames(e.OnCall.Users)
	default:
		what = e.Detail
	}
	at := time.Now()
	if e.At != nil {
		at = *e.At
	}
	_, err := fmt.Fprintf(p.out, "%s  %-21s  %s  %s\n", when(at), printable(e.Type), oneLine(e.Topic, 60), oneLine(what, 120))
	return err
}

func peopleNames(people []api.Person) string {
	s := ""
	for i, one := range people {
		if i > 0 {
			s += ", "
		}
		s += one.Name
	}
	if s == "" {
		return "nobody"
	}
	return s
}
