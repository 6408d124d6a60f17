package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// serve runs until it is told to stop, speaks JSON lines meanwhile, and then ends with 0.
func TestServeRunsAndStops(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tocsin.yaml")
	text := `
server: {listen: "127.0.0.1:0", metrics_listen: "127.0.0.1:0", public_url: "http://127.0.0.1:1"}
database: {url: "${DB}"}
notifiers: {team-log: {type: log, path: "` + filepath.Join(t.TempDir(), "alerts.jsonl") + `"}}
routes: [{match: "#", notify: [team-log]}]
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	url := storetest.NewEmpty(t)
	env := func(name string) (string, bool) { return url, name == "DB" }
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logs, w := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- execute(ctx, []string{"serve", "--config", path, "--insecure", "--migrate"}, strings.NewReader(""), io.Discard, w, env)
		_ = w.Close()
	}()
	said := map[string]bool{}
	for lines := bufio.NewScanner(logs); lines.Scan(); {
		var line struct{ Message, Listen, Time, Level, Replica string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Time == "" || line.Level == "" || line.Replica == "" {
			t.Errorf("a line of the log is not as promised: %s", lines.Text())
		}
		said[line.Message] = true
		if line.Message == "tocsin runs" {
			resp, err := http.Get("http://" + line.Listen + "/healthz")
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("/healthz: %v", err)
			}
			if err == nil {
				resp.Body.Close()
			}
			stop()
		}
	}
	if got := <-code; got != exitDone || !said["tocsin runs"] || !said["stopped"] {
		t.Errorf("exit code %d after the lines %v", got, said)
	}
}
