package app

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/client"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

// latencyAlerts is how many alerts one run sends, each when the one before is done.
const latencyAlerts = 200

// BenchmarkLatency measures how long it takes from the 202 to the moment at which the card's call reaches the chat, on
// a quiet system of two replicas that take the alerts in turn. The budget is p50 < 20 ms and p99 < 100 ms.
func BenchmarkLatency(b *testing.B) {
	e, _ := startDevAs(b, DevOptions{Unpaced: true})
	var clients []*client.Client
	for _, a := range e.Replicas {
		c, err := client.New("http://"+a.Addr(), e.Token)
		if err != nil {
			b.Fatal(err)
		}
		clients = append(clients, c)
	}
	var fromAnswer, fromRequest []time.Duration
	for b.Loop() {
		for i := range latencyAlerts {
			title := fmt.Sprintf("latency %d of run %d", i, len(fromAnswer))
			asked := time.Now()
			if _, err := clients[i%len(clients)].SendAlert(b.Context(), api.Alert{Kind: "latency", Criticality: "warning", Job: fmt.Sprint("job", len(fromAnswer)), Title: title}, ""); err != nil {
				b.Fatal(err)
			}
			answered := time.Now()
			var call chattest.Request
			if err := e.Slack.WaitFor(within(b), func(s *slacktest.Server) bool {
				posts := s.Ledger(chattest.ByMethod("chat.postMessage"))
				if len(posts) < 2*(len(fromAnswer)+1) { // the card and its first reply: then it is quiet again
					return false
				}
				call = posts[len(posts)-2]
				return true
			}); err != nil {
				l, _ := clients[0].Deliveries(b.Context(), client.Query{Limit: 8})
				for _, d := range l.Items {
					b.Logf("%+v", d)
				}
				log, _ := os.ReadFile(filepath.Join(e.Dir, "tocsin.log"))
				b.Fatalf("%v; the log ends with %s", err, log[max(0, len(log)-6000):])
			}
			if !strings.Contains(call.Text, title) {
				b.Fatalf("the call is not the card of %q: %s", title, call.Text)
			}
			fromAnswer = append(fromAnswer, call.At.Sub(answered))
			fromRequest = append(fromRequest, call.At.Sub(asked))
		}
	}
	for name, all := range map[string][]time.Duration{"call-after-202": fromAnswer, "call-after-request": fromRequest} {
		slices.Sort(all)
		b.ReportMetric(ms(all[len(all)/2]), name+"-p50-ms")
		b.ReportMetric(ms(all[len(all)*99/100]), name+"-p99-ms")
	}
	b.ReportMetric(0, "ns/op") // one run is many alerts and waits
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
