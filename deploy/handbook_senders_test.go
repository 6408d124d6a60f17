package deploy_test

import (
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
)

// The senders that the handbook reads by expressions, with what they send.
func TestHandbookReadsForeignSenders(t *testing.T) {
	t.Parallel()
	text := "server: {public_url: 'https://t.example.com'}\ndatabase: {url: 'postgres://x@y/z'}\n"
	for _, b := range blocks("sources.md", page(t, "sources.md")) {
		if b.language == "yaml" && strings.Contains(b.text, "kuma:") {
			text += b.text
		}
	}
	f, _, err := config.Parse("f", []byte(strings.NewReplacer("${KUMA_TOKEN}", "a", "${GITHUB_HOOK_TOKEN}", "b").Replace(text)), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	const kuma = `{"heartbeat": {"monitorID": 29, "status": STATUS, "time": "2026-01-05 09:00:00.527", "msg": "getaddrinfo ENOTFOUND shop.example.com", "important": true, "duration": 0},
		"monitor": {"id": 29, "name": "Shop", "description": null, "url": "https://shop.example.com", "hostname": null, "type": "http", "tags": []}, "msg": "[Shop] [Down] getaddrinfo ENOTFOUND"}`
	const github = `{"action": "ACTION", "workflow_run": {"id": 30433642, "name": "Build", "head_branch": "main", "display_title": "Fix it", "status": "completed", "conclusion": "CONCLUSION",
		"html_url": "https://github.com/shop/api/actions/runs/30433642"}, "repository": {"id": 1, "name": "api", "full_name": "shop/api"}, "sender": {"login": "ana"}}`
	for _, c := range []struct {
		source, body, topic, title, key string
		firing                          bool
	}{
		{"kuma", strings.Replace(kuma, "STATUS", "0", 1), "alert.down.high.kuma", "Shop is down", "kuma: 29", true},
		{"kuma", strings.Replace(kuma, "STATUS", "1", 1), "alert.down.high.kuma", "Shop is down", "kuma: 29", false},
		{"kuma", `{"heartbeat": null, "monitor": null, "msg": "My Alert Testing"}`, "", "", "", false},
		{"github", strings.NewReplacer("ACTION", "completed", "CONCLUSION", "failure").Replace(github), "alert.workflow_failed.high.api", "Build fails on main of shop/api", "github: shop/api Build main", true},
		{"github", strings.NewReplacer("ACTION", "completed", "CONCLUSION", "success").Replace(github), "alert.workflow_failed.high.api", "Build fails on main of shop/api", "github: shop/api Build main", false},
		{"github", strings.NewReplacer("ACTION", "requested", `"CONCLUSION"`, "null").Replace(github), "", "", "", false},
		{"github", `{"zen": "Design for failure.", "hook_id": 1, "hook": {"type": "Repository"}}`, "", "", "", false},
	} {
		m, err := intake.Read(f, f.Sources[c.source], []byte(c.body))
		if err != nil || len(m.Wrong)+len(m.Notes) > 0 {
			t.Errorf("%s: %v %v %v in %s", c.source, err, m.Wrong, m.Notes, c.body)
			continue
		}
		if c.topic == "" {
			if m.Alerts != 0 {
				t.Errorf("%s: %+v", c.source, m)
			}
			continue
		}
		if m.Alerts != 1 {
			t.Fatalf("%s: %+v", c.source, m)
		}
		if a := m.Groups[0].Alerts[0]; a.Topic() != c.topic || a.Title != c.title || m.Groups[0].Key != c.key || a.Firing != c.firing || len(a.Links) != 1 {
			t.Errorf("%s: %+v in %s", c.source, m.Groups[0], c.body)
		}
	}
}
