package app

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/redact"
	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// Rule 12: a delivery that no worker ever had, since there was nowhere to send it, is a death like any other: counted, told
// in the log, and raised as an alert.
func TestDeathWithoutAWorkerIsCounted(t *testing.T) {
	t.Parallel()
	db, dir := storetest.New(t), t.TempDir()
	path := filepath.Join(dir, "tocsin.yaml")
	if err := os.WriteFile(path, []byte(`
server: {listen: "127.0.0.1:0", metrics_listen: "127.0.0.1:0", public_url: "http://127.0.0.1:1"}
database: {url: "${DB}"}
notifiers: {audit: {type: webhook, url: "http://127.0.0.1:1/", off: true}}
routes: [{match: "alert.*.*.db", notify: [audit]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	a, err := New(t.Context(), Options{Path: path, Env: devSecrets{map[string]string{"DB": db}}.lookup, Insecure: true, Log: NewLog(log, &atomic.Pointer[redact.Set]{})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	base := "http://" + a.Addr()
	eventually(t, "the replica is ready", func() bool { n, _ := status(t, base+"/readyz"); return n == http.StatusOK })
	resp, err := http.Post(base+"/v1/alerts", "application/json", strings.NewReader(`{"kind": "k", "criticality": "high", "job": "db"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	eventually(t, "the self-alert", func() bool {
		return one[int](t, db, "select count(*) from incident where topic = 'alert.delivery_unreachable.high._tocsin'") == 1
	})
	text := fetch(t, "http://"+a.MetricsAddr()+"/metrics", http.StatusOK)
	for _, series := range []string{`tocsin_deliveries_total{kind="event",state="unreachable"} 1`, "tocsin_gave_up_total 1"} {
		if !strings.Contains(text, "\n"+series+"\n") {
			t.Errorf("there is no %s", series)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	lines, err := os.ReadFile(log.Name())
	if err != nil || bytes.Count(lines, []byte(`"message":"delivery died"`)) != 1 {
		t.Errorf("the log tells of it otherwise than once: %v\n%s", err, lines)
	}
}
