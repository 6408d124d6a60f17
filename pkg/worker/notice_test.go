package worker_test

import (
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// C13: everything was down when a notice about a shift was due. Within the hour that it is worth it goes out; two days late it does not, also
// when no scheduler has come to it yet.
func TestNoticeThatIsTooLateIsNotSent(t *testing.T) {
	t.Parallel()
	for down, want := range map[time.Duration]delivery.State{90 * time.Minute: delivery.Sent, 50 * time.Hour: delivery.Expired} {
		t.Run(down.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, direct("dm"))
			id := s.add(s.incident("a"), store.NewDelivery{
				Kind: delivery.Notice, Notifier: "dm", Target: "user:ana", Desired: 1, Delay: time.Hour, Lifetime: time.Hour, FromDue: true,
			})[0]
			s.move(down)
			s.start("first")
			r := s.waitFor(id, want)
			if n := len(s.desk("dm").all()); (n == 1) != (want == delivery.Sent) || n != r.Attempts {
				t.Errorf("%d calls, %+v", n, r)
			}
			if want == delivery.Expired && r.Reason != "lifetime_over" {
				t.Errorf("%+v", r)
			}
		})
	}
}
