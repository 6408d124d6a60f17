package deploy_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/provider/telegram/telegramtest"
)

// The script makes the call that the handbook shows, and hides its secrets from the list of processes.
func TestSetWebhookScript(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed, and the script needs it")
	}
	s := telegramtest.Start(t, telegramtest.Options{})
	run := func(secret string, args ...string) (string, error) {
		c := exec.CommandContext(t.Context(), "sh", append([]string{"telegram/set-webhook.sh"}, args...)...)
		c.Env = append(os.Environ(), "TELEGRAM_API="+s.URL(), "TELEGRAM_TOKEN="+s.Options().Token, "TELEGRAM_WEBHOOK_SECRET="+secret)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	if out, err := run("a_secret-1", "https://tocsin.example.com/", "ops-telegram"); err != nil || !strings.Contains(out, `"ok":true`) {
		t.Fatalf("%v: %s", err, out)
	}
	made := s.Ledger()
	if len(made) != 1 || made[0].Method != "setWebhook" {
		t.Fatalf("the script called %+v", made)
	}
	shown := page(t, "telegram.md")
	for name, want := range map[string]string{
		"url": "https://tocsin.example.com/telegram/ops-telegram", "secret_token": "a_secret-1", "allowed_updates": `["callback_query","message"]`,
	} {
		if got := made[0].Params[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
		if name != "secret_token" && !strings.Contains(shown, name+"="+want) {
			t.Errorf("the handbook's call has another %s than %s", name, want)
		}
	}
	if out, err := run("a_secret-1", "https://tocsin.example.com"); err == nil || !strings.Contains(out, "usage:") {
		t.Errorf("with one argument: %v: %s", err, out)
	}
	if out, err := run("", "https://tocsin.example.com", "ops-telegram"); err == nil || !strings.Contains(out, "usage:") {
		t.Errorf("without a secret: %v: %s", err, out)
	}
	if out, err := run("a_secret-1", "http://tocsin.example.com", "ops-telegram"); err == nil || !strings.Contains(out, `"ok":false`) {
		t.Errorf("Telegram refuses an address without TLS, and the script ended with %v: %s", err, out)
	}
}
