package slacktest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/tocsin-oncall/tocsin/pkg/provider/slack/slacktest"
)

// receiver verifies callbacks as tocsin would, with slack-go.
type receiver struct {
	url string
	got chan slack.InteractionCallback
	bad chan error
}

func receive(t *testing.T, secret string) *receiver {
	t.Helper()
	r := &receiver{got: make(chan slack.InteractionCallback, 9), bad: make(chan error, 9)}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		v, err := slack.NewSecretsVerifier(req.Header, secret)
		if err == nil {
			_, _ = v.Write(body)
			err = v.Ensure()
		}
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
			r.bad <- err
			return
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		if req.FormValue("command") != "" {
			_, _ = io.WriteString(w, `{"text":"linked *`+req.FormValue("text")+`*"}`)
			return
		}
		var cb slack.InteractionCallback
		if err := json.Unmarshal([]byte(req.FormValue("payload")), &cb); err != nil {
			r.bad <- err
			return
		}
		r.got <- cb
	}))
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func TestPressSendsASignedCallbackAndTheAnswerIsPrivate(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{SigningSecret: "shh"})
	in := receive(t, "shh")
	s.SetInteractionURL(in.url)
	_, ts, err := client(s).PostMessage("C0OPS", slack.MsgOptionText("x", false), card("#e01e5a", "disk"), keyed("k"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.Press(t.Context(), ts, "ack", "U0BO")
	if err != nil || a.Status != 200 {
		t.Fatalf("press: %+v, %v", a, err)
	}
	cb := <-in.got
	action := cb.ActionCallback.BlockActions[0]
	if cb.Type != slack.InteractionTypeBlockActions || cb.User.ID != "U0BO" || cb.Channel.ID != "C0OPS" || cb.Container.MessageTs != ts ||
		action.ActionID != "ack" || action.Value != "inc-1" || cb.Message.Timestamp != ts || cb.TriggerID == "" || action.ActionTs == "" {
		t.Errorf("callback: %+v", cb)
	}

	for i := range 6 {
		err := slack.PostWebhook(cb.ResponseURL, &slack.WebhookMessage{Text: "taken by you", ResponseType: "ephemeral"})
		if (err == nil) != (i < 5) {
			t.Errorf("use %d of the response_url: %v", i+1, err)
		}
	}
	e := s.Ephemerals("U0BO")
	if len(e) != 5 || e[0].Text != "taken by you" || e[0].Channel != "C0OPS" || e[0].AfterTS != ts || len(s.Ephemerals("U0ANA")) != 0 || len(s.Messages("C0OPS")) != 1 {
		t.Errorf("ephemerals: %+v", e)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.WaitFor(ctx, func(s *slacktest.Server) bool { return len(s.Ephemerals("")) == 5 }); err != nil {
		t.Error(err)
	}
	if page := get(t, s.URL()+"/?c=C0OPS&as=U0BO"); !strings.Contains(page, "Only visible to you") {
		t.Error("Bo does not see his private answer")
	}
	if page := get(t, s.URL()+"/?c=C0OPS&as=U0ANA"); strings.Contains(page, "Only visible to you") {
		t.Error("Ana sees Bo's private answer")
	}
}

func TestAChangedCallbackDoesNotVerify(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{SigningSecret: "shh"})
	in := receive(t, "shh")
	s.SetInteractionURL(in.url)
	_, ts, err := client(s).PostMessage("C0OPS", slack.MsgOptionText("x", false), card("#e01e5a", "disk"))
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.PressRequest(t.Context(), ts, "ack", "U0BO")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(r.Body)
	changed := strings.Replace(string(body), "U0BO", "U0ANA", 1)
	r.Body, r.ContentLength, r.GetBody = io.NopCloser(strings.NewReader(changed)), int64(len(changed)), nil
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if err := <-in.bad; resp.StatusCode != 401 || err == nil {
		t.Errorf("a changed body verified: %d", resp.StatusCode)
	}
	if _, err := s.Press(t.Context(), ts, "resolve", "U0BO"); err == nil {
		t.Error("pressed a button that the message does not show")
	}
	if _, err := s.Press(t.Context(), "1.000001", "ack", "U0BO"); err == nil {
		t.Error("pressed on a message that is not there")
	}
}

func TestResponseURLReplacesAndPosts(t *testing.T) {
	t.Parallel()
	s := slacktest.Start(t, slacktest.Options{})
	in := receive(t, s.Options().SigningSecret)
	s.SetInteractionURL(in.url)
	s.SetCommandURL(in.url)
	_, ts, err := client(s).PostMessage("C0OPS", slack.MsgOptionText("x", false), card("#e01e5a", "disk"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Press(t.Context(), ts, "ack", "U0BO"); err != nil {
		t.Fatal(err)
	}
	cb := <-in.got
	if err := slack.PostWebhook(cb.ResponseURL, &slack.WebhookMessage{Text: "new", ReplaceOriginal: true}); err != nil {
		t.Fatal(err)
	}
	if m, _ := s.Message(ts); m.Text != "new" || len(m.Edits) != 1 {
		t.Errorf("replaced: %+v", m)
	}
	if err := slack.PostWebhook(cb.ResponseURL, &slack.WebhookMessage{Text: "for all", ResponseType: "in_channel"}); err != nil {
		t.Fatal(err)
	}
	if m := s.Messages("C0OPS"); len(m) != 2 || m[1].Text != "for all" {
		t.Errorf("posted: %+v", m)
	}
	if err := slack.PostWebhook(s.URL()+"/response/nothing", &slack.WebhookMessage{Text: "x"}); err == nil {
		t.Error("a response_url that was never given worked")
	}
	if a, err := s.Command(t.Context(), "C0OPS", "U0ANA", "/tocsin", "link 42"); err != nil || a.Status != 200 {
		t.Fatalf("command: %+v, %v", a, err)
	}
	if e := s.Ephemerals("U0ANA"); len(e) != 1 || e[0].Text != "linked *link 42*" {
		t.Errorf("answer to the command: %+v", e)
	}
}
