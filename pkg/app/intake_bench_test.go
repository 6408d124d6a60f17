package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/provider/chattest"
	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

const (
	benchSources = 16 // connections that send at the same time
	benchFor     = 10 * time.Second
	benchWarm    = 500
	benchStorm   = 10_000           // alerts into one incident
	benchLimit   = 50 * time.Second // after which a measurement ends with what it has sent
)

// benchReplica runs one replica until the benchmark ends, as the command does.
func benchReplica(b *testing.B, rest string) (db, address string) {
	b.Helper()
	before := debug.SetGCPercent(400)
	b.Cleanup(func() { debug.SetGCPercent(before) })
	db = storetest.NewPlain(b)
	path := filepath.Join(b.TempDir(), "tocsin.yaml")
	if err := os.WriteFile(path, []byte(fmt.Sprintf(servedHead, db)+rest), 0o600); err != nil {
		b.Fatal(err)
	}
	a, err := New(b.Context(), Options{Path: path, Insecure: true})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	return db, "http://" + a.Addr()
}

// sender sends alerts through a connection of its own, with as little work as can be: source, replica and database share the machine here.
func sender(b *testing.B, address string) func(api.Alert) (status int) {
	b.Helper()
	host := strings.TrimPrefix(address, "http://")
	conn, err := net.Dial("tcp", host)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	r := bufio.NewReader(conn)
	return func(a api.Alert) int {
		body, err := json.Marshal(a)
		if err != nil {
			b.Error(err)
			return 0
		}
		if _, err := fmt.Fprintf(conn, "POST /v1/alerts HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", host, len(body), body); err != nil {
			b.Error(err)
			return 0
		}
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			b.Error(err)
			return 0
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			b.Error(err)
		}
		return resp.StatusCode
	}
}

// sources sends alerts from as many connections as sources have, each begun at its own time whether or not the one before
// is answered late: what a late answer delays counts as its latency. rate 0 sends as fast as answers come. A machine that is
// too slow for it is given benchLimit. sent is how many were answered.
func sources(b *testing.B, address string, n, rate int, alert func(i int) api.Alert) (sent, refused int) {
	b.Helper()
	took := make([]time.Duration, n)
	var next, no atomic.Int64
	began := time.Now()
	var all sync.WaitGroup
	for range benchSources {
		send := sender(b, address)
		all.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= n || time.Since(began) > benchLimit {
					return
				}
				due := time.Now()
				if rate > 0 {
					due = began.Add(time.Duration(i) * time.Second / time.Duration(rate))
					time.Sleep(time.Until(due))
				}
				if status := send(alert(i)); status != http.StatusAccepted {
					no.Add(1)
					b.Logf("an alert was answered with %d", status)
				}
				took[i] = time.Since(due)
			}
		})
	}
	all.Wait()
	took = slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
	n = len(took)
	b.ReportMetric(float64(n)/time.Since(began).Seconds(), "alerts/s")
	slices.Sort(took)
	b.ReportMetric(ms(took[n/2]), "accept-p50-ms")
	b.ReportMetric(ms(took[n*99/100]), "accept-p99-ms")
	b.ReportMetric(0, "ns/op")
	return n, int(no.Load())
}

// setting reads a number that a person may set for a measurement.
func setting(name string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return otherwise
}

// incidentOf is the incident of the i-th alert: each tenth opens one, and the others join one of those that there are, any of them.
func incidentOf(i int) int {
	if i%10 == 0 {
		return i / 10
	}
	return int(uint64(i) * 2654435761 % uint64(i/10+1)) //nolint:gosec // small and positive
}

// BenchmarkIntake measures the answer to a source: one replica, 16 connections, 1,000 alerts a second for ten seconds, a
// tenth of which open incidents and the others join one, each with a fingerprint of its own. The budget is p99 < 100 ms.
func BenchmarkIntake(b *testing.B) {
	db, address := benchReplica(b, fmt.Sprintf(`
notifiers: {team-log: {type: log, path: %q}}
routes: [{match: "#", notify: [team-log]}]
`, filepath.Join(b.TempDir(), "alerts.jsonl")))
	rate := setting("TOCSIN_INTAKE_RATE", 1000)
	n := rate * int(benchFor.Seconds())
	if rate == 0 {
		n = 5000
	}
	// A replica that has just begun has still to make its connections and plans.
	sources(b, address, benchWarm, 0, func(i int) api.Alert {
		return api.Alert{Kind: "load", Criticality: "high", Job: "web", Key: fmt.Sprint("before ", i%(benchWarm/10)), Title: "Load", Labels: map[string]string{"host": fmt.Sprint(i)}}
	})
	for b.Loop() {
		sent, refused := sources(b, address, n, rate, func(i int) api.Alert {
			return api.Alert{Kind: "load", Criticality: "high", Job: "web", Key: fmt.Sprint("incident ", incidentOf(i)), Title: fmt.Sprint("Load of host ", i), Labels: map[string]string{"host": fmt.Sprint(i)}}
		})
		if stored := one[int](b, db, "select count(*) from alert"); stored < sent-refused {
			b.Fatalf("%d alerts were answered with a 202 and %d are in the database", sent-refused, stored)
		}
		b.ReportMetric(float64(refused), "refused")
	}
}

// BenchmarkStorm sends 10,000 alerts into one incident as fast as they are taken, and counts what that costs the channel: a
// card shows the newest state at its pace, whatever came in between. The channel has one slot a second, which the card
// shares with the replies of its thread.
func BenchmarkStorm(b *testing.B) {
	slack := slacktest.New(slacktest.Options{})
	if _, err := slack.Listen("127.0.0.1:0"); err != nil {
		b.Fatal(err)
	}
	_, address := benchReplica(b, fmt.Sprintf(`
notifiers: {ops: {type: slack, token: xoxb-simulated, channel: C0OPS, api_url: %q}}
routes: [{match: "#", notify: [ops]}]
`, slack.APIURL()))
	for b.Loop() {
		began := time.Now()
		sent, refused := sources(b, address, benchStorm, 0, func(i int) api.Alert {
			return api.Alert{Kind: "load", Criticality: "high", Job: "web", Key: "one", Title: "Load", Labels: map[string]string{"host": fmt.Sprint(i)}}
		})
		slots := time.Since(began).Seconds()
		b.ReportMetric(float64(sent-refused), "alerts")
		b.ReportMetric(float64(len(slack.Ledger(chattest.ByMethod("chat.update"))))/slots, "edits/slot")
		b.ReportMetric(float64(len(slack.Ledger(chattest.ByMethod("chat.postMessage"))))/slots, "replies/slot")
		b.ReportMetric(float64(refused), "refused")
	}
}
