// Package client speaks tocsin's HTTP interface for programs and for the operator's command line. It makes one call
// per method and never repeats one: who calls decides that.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
)

// Client talks to one server. It is safe for use by many goroutines.
type Client struct {
	base  string
	token string
	http  *http.Client
}

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 32 << 20

// New makes a client of the server at base, e.g. "https://tocsin.example.com". An empty token sends none. An error
// says what is wrong with base.
func New(base, token string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is not the address of a server: give it as https://HOST or http://HOST:PORT", base)
	}
	return &Client{
		base:  strings.TrimRight(base, "/"),
		token: token,
		http: &http.Client{
			Timeout:       30 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token goes nowhere else
		},
	}, nil
}

// SendAlert hands an alert in. With a key, sending it again has no second effect. When it returns without error, the
// alert is committed.
func (c *Client) SendAlert(ctx context.Context, a api.Alert, idempotencyKey string) (api.Accepted, error) {
	header := http.Header{}
	if idempotencyKey != "" {
		header.Set("Idempotency-Key", idempotencyKey)
	}
	var out api.Accepted
	err := c.do(ctx, http.MethodPost, "/v1/alerts", nil, header, a, &out)
	return out, err
}

// Query chooses a page of a list. Zero fields choose everything.
type Query struct {
	State    string
	Notifier string // deliveries only
	Kind     string // deliveries only
	Incident string // deliveries only
	Limit    int
	Cursor   string
}

func (q Query) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"state": q.State, "notifier": q.Notifier, "kind": q.Kind, "incident": q.Incident, "cursor": q.Cursor} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// Incidents is a page of incidents, newest first.
func (c *Client) Incidents(ctx context.Context, q Query) (out api.List[api.Incident], err error) {
	err = c.do(ctx, http.MethodGet, "/v1/incidents", q.values(), nil, nil, &out)
	return out, err
}

// Incident is one incident with its timeline.
func (c *Client) Incident(ctx context.Context, id string) (out api.Incident, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/incidents/"+url.PathEscape(id), nil, nil, nil, &out)
	return out, err
}

// Acknowledge says that someone works on the incident: nobody else is paged for it.
func (c *Client) Acknowledge(ctx context.Context, id string, a api.IncidentAction) (out api.Incident, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/incidents/"+url.PathEscape(id)+"/acknowledge", nil, nil, a, &out)
	return out, err
}

// Snooze puts the incident off: it rings again unless it is resolved.
func (c *Client) Snooze(ctx context.Context, id string, a api.SnoozeIncident) (out api.Incident, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/incidents/"+url.PathEscape(id)+"/snooze", nil, nil, a, &out)
	return out, err
}

// Escalate brings on the next step of the incident's escalation.
func (c *Client) Escalate(ctx context.Context, id string, a api.IncidentAction) (out api.Incident, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/incidents/"+url.PathEscape(id)+"/escalate", nil, nil, a, &out)
	return out, err
}

// Reassign pages one person instead.
func (c *Client) Reassign(ctx context.Context, id string, a api.ReassignIncident) (out api.Incident, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/incidents/"+url.PathEscape(id)+"/reassign", nil, nil, a, &out)
	return out, err
}

// Resolve ends the incident by a person's word.
func (c *Client) Resolve(ctx context.Context, id string, a api.IncidentAction) (out api.Incident, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/incidents/"+url.PathEscape(id)+"/resolve", nil, nil, a, &out)
	return out, err
}

// Deliveries is a page of deliveries, newest first.
func (c *Client) Deliveries(ctx context.Context, q Query) (out api.List[api.Delivery], err error) {
	err = c.do(ctx, http.MethodGet, "/v1/deliveries", q.values(), nil, nil, &out)
	return out, err
}

// Delivery is one delivery with its attempts and decisions.
func (c *Client) Delivery(ctx context.Context, id string) (out api.Delivery, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/deliveries/"+url.PathEscape(id), nil, nil, nil, &out)
	return out, err
}

// Decide gives a person's word on a delivery.
func (c *Client) Decide(ctx context.Context, id string, d api.Decide) (out api.Delivery, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/deliveries/"+url.PathEscape(id)+"/decision", nil, nil, d, &out)
	return out, err
}

// DecideMany gives a person's word on all dead deliveries that a filter finds, or counts them.
func (c *Client) DecideMany(ctx context.Context, d api.DecideMany) (out api.DecisionRun, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/decisions", nil, nil, d, &out)
	return out, err
}

// Decisions is a page of decisions on many deliveries, newest first.
func (c *Client) Decisions(ctx context.Context, q Query) (out api.List[api.DecisionRun], err error) {
	err = c.do(ctx, http.MethodGet, "/v1/decisions", q.values(), nil, nil, &out)
	return out, err
}

// Decision is one decision on many deliveries with its counts.
func (c *Client) Decision(ctx context.Context, id string) (out api.DecisionRun, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/decisions/"+url.PathEscape(id), nil, nil, nil, &out)
	return out, err
}

// CancelDecision takes no more of a decision on many deliveries.
func (c *Client) CancelDecision(ctx context.Context, id string) (out api.DecisionRun, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/decisions/"+url.PathEscape(id)+"/cancel", nil, nil, nil, &out)
	return out, err
}

// Notifiers are the ways out of the server's file.
func (c *Client) Notifiers(ctx context.Context) (out api.List[api.Notifier], err error) {
	err = c.do(ctx, http.MethodGet, "/v1/notifiers", nil, nil, nil, &out)
	return out, err
}

// Heartbeats are those of the server's file.
func (c *Client) Heartbeats(ctx context.Context) (out api.List[api.Heartbeat], err error) {
	err = c.do(ctx, http.MethodGet, "/v1/heartbeats", nil, nil, nil, &out)
	return out, err
}

// TestNotifier sends a test through a notifier: a delivery like every other, whose id is in the answer.
func (c *Client) TestNotifier(ctx context.Context, name string, t api.Trial) (out api.Tried, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/notifiers/"+url.PathEscape(name)+"/test", nil, nil, t, &out)
	return out, err
}

// OnCall is who is on call. An empty schedule asks for all of them, a zero instant for now.
func (c *Client) OnCall(ctx context.Context, schedule string, at time.Time) (out api.List[api.OnCall], err error) {
	v := url.Values{}
	if schedule != "" {
		v.Set("schedule", schedule)
	}
	if !at.IsZero() {
		v.Set("at", at.Format(time.RFC3339))
	}
	err = c.do(ctx, http.MethodGet, "/v1/oncall", v, nil, nil, &out)
	return out, err
}

// Link links the chat account that was shown the code to a user, and applies the button press that asked for it.
func (c *Client) Link(ctx context.Context, user, code string) (out api.Linked, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/users/"+url.PathEscape(user)+"/link", nil, nil, api.LinkAccount{Code: code}, &out)
	return out, err
}

// Invite makes a one-time code that the user hands in from a chat.
func (c *Client) Invite(ctx context.Context, user string) (out api.Linked, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/users/"+url.PathEscape(user)+"/link", nil, nil, api.LinkAccount{}, &out)
	return out, err
}

// Unlink takes a chat account away from a user.
func (c *Client) Unlink(ctx context.Context, user string, u api.UnlinkAccount) (out api.User, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/users/"+url.PathEscape(user)+"/unlink", nil, nil, u, &out)
	return out, err
}

// Users are the people of the server's file.
func (c *Client) Users(ctx context.Context) (out api.List[api.User], err error) {
	err = c.do(ctx, http.MethodGet, "/v1/users", nil, nil, nil, &out)
	return out, err
}

// CreateToken makes an API token. Its text is in the answer and nowhere else.
func (c *Client) CreateToken(ctx context.Context, t api.NewToken) (out api.MadeToken, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/tokens", nil, nil, t, &out)
	return out, err
}

// Tokens are all API tokens that were made, without their text.
func (c *Client) Tokens(ctx context.Context) (out api.List[api.Token], err error) {
	err = c.do(ctx, http.MethodGet, "/v1/tokens", nil, nil, nil, &out)
	return out, err
}

// RevokeToken ends an API token.
func (c *Client) RevokeToken(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(name), nil, nil, nil, nil)
}

// Silences are the silences that are not over, newest first; with ended those that are as well.
func (c *Client) Silences(ctx context.Context, ended bool, q Query) (out api.List[api.Silence], err error) {
	v := q.values()
	if ended {
		v.Set("ended", "true")
	}
	err = c.do(ctx, http.MethodGet, "/v1/silences", v, nil, nil, &out)
	return out, err
}

// AddSilence keeps alerts back for a time.
func (c *Client) AddSilence(ctx context.Context, s api.NewSilence) (out api.Silence, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/silences", nil, nil, s, &out)
	return out, err
}

// EndSilence ends a silence before its time. by is a user's id; empty: the token's word.
func (c *Client) EndSilence(ctx context.Context, id, by string) (out api.Silence, err error) {
	v := url.Values{}
	if by != "" {
		v.Set("by", by)
	}
	err = c.do(ctx, http.MethodDelete, "/v1/silences/"+url.PathEscape(id), v, nil, nil, &out)
	return out, err
}

// Explain says what would become of an alert or a payload, or became of an incident, and why.
func (c *Client) Explain(ctx context.Context, q api.Explain) (out api.Explanation, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/explain", nil, nil, q, &out)
	return out, err
}

// Replicas are the server's replicas, and in what they differ.
func (c *Client) Replicas(ctx context.Context) (out api.Replicas, err error) {
	err = c.do(ctx, http.MethodGet, "/v1/replicas", nil, nil, nil, &out)
	return out, err
}

// do makes one call. An error answer comes back as *api.Problem.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, header http.Header, in, out any) error {
	target := c.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err
		}
		return fmt.Errorf("ask %s: %w (is the server running, and the address right?)", c.base, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	if resp.StatusCode/100 != 2 {
		return problem(resp, b)
	}
	if out == nil || len(b) == 0 {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s did not answer as tocsin does (%s): %w", c.base, resp.Header.Get("Content-Type"), err)
	}
	return nil
}

// problem reads an error answer; one that is no problem document (a proxy's, say) becomes one.
func problem(resp *http.Response, body []byte) error {
	p := &api.Problem{}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") && json.Unmarshal(body, p) == nil && p.Status != 0 {
		return p
	}
	text := strings.TrimSpace(string(body[:min(len(body), 200)]))
	return &api.Problem{Type: "about:blank", Title: http.StatusText(resp.StatusCode), Status: resp.StatusCode,
		Detail: strings.TrimSuffix(fmt.Sprintf("the server answered %s: %s", resp.Status, text), ": ")}
}
