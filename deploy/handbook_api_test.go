package deploy_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/server"
)

func TestAPIPageHasEveryEndpoint(t *testing.T) {
	t.Parallel()
	text := page(t, "api.md")
	raw, err := server.New(server.Options{File: func() *config.File { return &config.File{} }}).OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct{ Description string }
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{} // endpoint -> scope
	for path, methods := range doc.Paths {
		for method, op := range methods {
			m := regexp.MustCompile(`the scope ([a-z]+)\b`).FindStringSubmatch(op.Description)
			if m == nil {
				t.Fatalf("%s %s does not say which scope it needs: %q", method, path, op.Description)
			}
			want[strings.ToUpper(method)+" "+path] = m[1]
		}
	}
	if len(want) < 10 {
		t.Fatalf("only %d endpoints", len(want))
	}
	said := map[string]string{}
	for _, r := range table(text, "") {
		if len(r) == 3 && (strings.Contains(r[0], " /v1/") || strings.Contains(r[0], " /api/")) {
			said[strings.Trim(r[0], "`")] = r[1]
		}
	}
	if !maps.Equal(said, want) {
		t.Errorf("api.md lists %v, the server has %v", said, want)
	}
}

func TestAPIPageHasEveryProblem(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../pkg/api/problem.go")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, m := range regexp.MustCompile(`problemPrefix \+ "([a-z-]+)" +// (\d+)`).FindAllStringSubmatch(string(source), -1) {
		want[m[1]] = m[2]
	}
	said := map[string]string{}
	for _, r := range table(page(t, "api.md"), "type `urn:tocsin:problem:…`") {
		said[strings.Trim(r[0], "`")] = r[1]
	}
	if len(want) < 10 || !maps.Equal(said, want) {
		t.Errorf("api.md has the problems %v, the code %v", said, want)
	}
}

// The bodies in the examples fit the wire types, and each example asks an endpoint that is there.
func TestExamplesFitTheAPI(t *testing.T) {
	t.Parallel()
	fits := map[string]func() any{
		"/v1/alerts$":               func() any { return &api.Alert{} },
		"/(acknowledge|resolve)$":   func() any { return &api.IncidentAction{} },
		"/decision$":                func() any { return &api.Decide{} },
		"/v1/users/[^/]+/link$":     func() any { return &api.LinkAccount{} },
		"/v1/notifiers/[^/]+/test$": func() any { return &api.Trial{} },
		"/v1/silences$":             func() any { return &api.NewSilence{} },
		"/v1/explain$":              func() any { return &api.Explain{} },
		"/v1/silences/":             func() any { return &api.EditSilence{} },
		"/v1/tokens$":               func() any { return &api.NewToken{} },
		"/v1/alertmanager$":         func() any { return &map[string]any{} },
		"/v1/(grafana|sources/.*)$": func() any { return &map[string]any{} },
	}
	example := regexp.MustCompile(`(?s)(/v1/[^"\s?]+)[^\n]*?(?:\\\n[^\n]*?)?--json '(.*?)'`)
	tried := 0
	for _, name := range []string{"api.md", "alertmanager.md", "sources.md", "grafana.md"} {
		for _, b := range blocks(name, page(t, name)) {
			for _, m := range example.FindAllStringSubmatch(b.text, -1) {
				path, body := m[1], m[2]
				var into any
				for pattern, empty := range fits {
					if regexp.MustCompile(pattern).MatchString(path) {
						into = empty()
					}
				}
				if into == nil {
					t.Errorf("%s: no wire type is known for %s", name, path)
					continue
				}
				tried++
				d := json.NewDecoder(strings.NewReader(body))
				d.DisallowUnknownFields()
				if err := d.Decode(into); err != nil {
					t.Errorf("%s: the body for %s does not fit: %v\n%s", name, path, err, body)
				}
			}
		}
	}
	if tried < 8 {
		t.Errorf("only %d examples with a body found", tried)
	}
}

func TestSlackManifestAsksForWhatIsUsed(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("slack/manifest.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m struct {
		Features struct {
			Home struct {
				Messages bool `yaml:"messages_tab_enabled"`
			} `yaml:"app_home"`
			Bot struct {
				Name string `yaml:"display_name"`
			} `yaml:"bot_user"`
		} `yaml:"features"`
		OAuth struct {
			Scopes struct {
				Bot []string `yaml:"bot"`
			} `yaml:"scopes"`
		} `yaml:"oauth_config"`
		Settings struct {
			Interactivity struct {
				On  bool   `yaml:"is_enabled"`
				URL string `yaml:"request_url"`
			} `yaml:"interactivity"`
			Socket   bool `yaml:"socket_mode_enabled"`
			Rotation bool `yaml:"token_rotation_enabled"`
		} `yaml:"settings"`
	}
	// The other manifest is the same app without addresses.
	other, err := os.ReadFile("slack/manifest-socket.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(raw)) {
		if !strings.HasPrefix(line, "#") && !strings.Contains(line, "url: https://") {
			lines = append(lines, strings.Replace(line, "socket_mode_enabled: false", "socket_mode_enabled: true", 1))
		}
	}
	if _, body, _ := strings.Cut(string(other), "display_information:"); "display_information:"+body != strings.Join(lines, "") {
		t.Error("slack/manifest-socket.yaml is not slack/manifest.yaml without its addresses")
	}
	if err := yaml.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	if s := m.Settings; !s.Interactivity.On || s.Interactivity.URL != sample(t).Server.PublicURL+"/slack/interactions" || s.Socket || s.Rotation {
		t.Errorf("settings are %+v", s)
	}
	if !m.Features.Home.Messages || m.Features.Bot.Name != "tocsin" {
		t.Errorf("features are %+v", m.Features)
	}
	// What the provider calls needs these scopes and no other: a method that is new in the code is to be looked up.
	history := []string{"channels:history", "groups:history", "im:history"}
	known := map[string][]string{
		"UpdateMessageContext": {"chat:write"}, "PostMessageContext": {"chat:write"}, "PostEphemeralContext": {"chat:write"}, "GetPermalinkContext": nil,
		"auth.test": nil, "chat.delete": {"chat:write"}, "conversations.open": {"im:write"}, "conversations.info": {"channels:read", "groups:read"},
		"users.lookupByEmail": {"users:read", "users:read.email"}, "conversations.history": history, "conversations.replies": history,
		"users.info": {"users:read"}, "usergroups.users.update": {"usergroups:write"},
	}
	needed := map[string]bool{"commands": true} // the slash command, which is called by Slack
	files, err := filepath.Glob("../pkg/provider/slack/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range regexp.MustCompile(`\bapi\.([A-Z][A-Za-z]+)\(|\b(?:ask|readAll)\([^"\n]*"([a-z]+(?:\.[A-Za-z]+)+)"`).FindAllSubmatch(text, -1) {
			method := string(c[1]) + string(c[2])
			scopes, ok := known[method]
			if !ok {
				t.Errorf("%s calls %s: does the manifest have its scope?", file, method)
			}
			for _, s := range scopes {
				needed[s] = true
			}
		}
	}
	if had := slices.Sorted(slices.Values(m.OAuth.Scopes.Bot)); !slices.Equal(had, slices.Sorted(maps.Keys(needed))) {
		t.Errorf("the manifest has the scopes %q, the provider needs %q", had, slices.Sorted(maps.Keys(needed)))
	}
	text := page(t, "slack.md")
	for s := range needed {
		if !slices.Contains(code(text), s) {
			t.Errorf("slack.md does not say what %s is for", s)
		}
	}
}

func TestAlertmanagerReceiver(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("alertmanager/alertmanager.yml")
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Route struct {
			Receiver string   `yaml:"receiver"`
			GroupBy  []string `yaml:"group_by"`
		} `yaml:"route"`
		Receivers []struct {
			Name  string `yaml:"name"`
			Hooks []struct {
				URL      string `yaml:"url"`
				Resolved bool   `yaml:"send_resolved"`
				Most     int    `yaml:"max_alerts"`
				HTTP     struct {
					Authorization struct {
						Type string `yaml:"type"`
						File string `yaml:"credentials_file"`
					} `yaml:"authorization"`
				} `yaml:"http_config"`
			} `yaml:"webhook_configs"`
		} `yaml:"receivers"`
	}
	if err := yaml.UnmarshalWithOptions(raw, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Receivers) != 1 || f.Receivers[0].Name != f.Route.Receiver || len(f.Receivers[0].Hooks) != 1 {
		t.Fatalf("receivers: %+v", f.Receivers)
	}
	h := f.Receivers[0].Hooks[0]
	if h.URL != sample(t).Server.PublicURL+"/v1/alertmanager" || !h.Resolved || h.Most != 0 || h.HTTP.Authorization.Type != "Bearer" || h.HTTP.Authorization.File == "" {
		t.Errorf("the receiver is %+v", h)
	}
	if !strings.Contains(page(t, "alertmanager.md"), h.HTTP.Authorization.File) || slices.Contains(f.Route.GroupBy, "...") {
		t.Error("the page and the receiver do not name the same token file, or every alert is a group of its own")
	}
}
