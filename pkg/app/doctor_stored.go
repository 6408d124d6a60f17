package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/api"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/plan"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

const (
	aboutStored    = "stored"
	aboutPeople    = "people"
	aboutCalendars = "calendars"
	aboutPublicURL = "public_url"
)

// aboutStored looks at what the database holds.
func (d *doctor) aboutStored(ctx context.Context, s *store.Store) []Check {
	var all []Check
	if live, err := s.LiveTokens(ctx); err != nil {
		all = append(all, unread("tokens", err))
	} else {
		all = append(all, judgeTokens(d.file, live, d.Path)...)
	}
	if pauses, err := s.Pauses(ctx); err != nil {
		all = append(all, unread("pauses", err))
	} else {
		all = append(all, judgePauses(pauses, d.file)...)
	}
	if dead, err := s.ListDeliveries(ctx, store.DeliveryFilter{State: "dead", Limit: api.MaxLimit}); err != nil {
		all = append(all, unread("dead letters", err))
	} else {
		all = append(all, judgeDead(len(dead.Items), dead.NextCursor != ""))
	}
	if standing, err := s.Receivers(ctx, receiverAlive); err != nil {
		all = append(all, unread("receivers", err))
	} else {
		all = append(all, judgeReceivers(d.file, standing)...)
	}
	if accounts, err := s.Accounts(ctx); err != nil {
		all = append(all, unread("accounts", err))
	} else {
		overrides, err := s.OverridesFrom(ctx, d.now())
		if err != nil {
			all = append(all, unread("overrides", err))
		}
		all = append(all, d.judgePeople(ctx, d.file.WithOverrides(overrides), accounts)...)
		all = append(all, d.judgeCalendars(ctx, s, overrides)...)
	}
	return all
}

// judgeCalendars says how it stands with the calendars that layers are imported from. It fetches none: what counts is the copy that all
// replicas go by.
func (d *doctor) judgeCalendars(ctx context.Context, s *store.Store, over oncall.Overlay) []Check {
	if len(d.file.Calendars) == 0 {
		return nil
	}
	states, err := s.CalendarStates(ctx)
	if err != nil {
		return []Check{unread("calendars", err)}
	}
	var all []Check
	for _, c := range plan.Calendars(d.file, store.PlannedCalendars(states), over, d.now()) {
		about := c.Schedule + " " + c.Layer
		for _, text := range c.Sentences() {
			all = append(all, warn(aboutCalendars, about, "mend the calendar, its address or the users' email in the file; the layers below count meanwhile", "%s", text))
		}
		switch notes := strings.Join(c.Notes, " "); {
		case len(c.Wrong) > 0 && notes == "":
		case c.FetchedAt == nil:
			all = append(all, warn(aboutCalendars, about, "start serve, which fetches it", "%s", notes))
		case notes != "":
			all = append(all, ok(aboutCalendars, about, "%s", notes))
		default:
			all = append(all, ok(aboutCalendars, about, "fetched %s", c.FetchedAt.UTC().Format(time.RFC3339)))
		}
	}
	return all
}

// receiverAlive is how old the word of a replica about its receivers may be.
const receiverAlive = 4 * receiverTell

// judgeReceivers says whether what people do in the chats that are asked arrives somewhere.
func judgeReceivers(f *config.File, standing []store.Receiver) []Check {
	var all []Check
	for w := range wanted(f) {
		check := map[string]string{"poll": "polling", "socket": "Socket Mode"}[w.kind]
		var connected []string
		trouble := ""
		for _, s := range standing {
			switch {
			case s.Notifier != w.notifier || s.Kind != w.kind:
			case s.State == "connected":
				connected = append(connected, s.Replica)
			case s.State == "failed":
				trouble = s.Replica + " says: " + s.Detail
			}
		}
		switch {
		case trouble != "":
			all = append(all, warn(w.notifier, check, "do what it says; buttons and commands may not arrive", "%s", trouble))
		case len(connected) > 0:
			all = append(all, ok(w.notifier, check, "%s", "held by "+few(connected)))
		default:
			all = append(all, warn(w.notifier, check, "start serve", "no replica that runs holds it: buttons and commands do not arrive"))
		}
	}
	slices.SortFunc(all, func(a, b Check) int { return strings.Compare(a.About, b.About) })
	return all
}

// judgeTokens says whether there is a token for what needs one.
func judgeTokens(f *config.File, live []store.Token, path string) []Check {
	const check = "tokens"
	var scopes [][]string
	for _, t := range f.Server.Tokens {
		scopes = append(scopes, t.Scopes)
	}
	for _, t := range live {
		scopes = append(scopes, t.Scopes)
	}
	for _, src := range f.Sources {
		if src.Token != "" {
			scopes = append(scopes, []string{api.ScopeIngest})
		}
	}
	may := func(scope string) bool {
		return slices.ContainsFunc(scopes, func(have []string) bool { return api.Allows(have, scope) })
	}
	command := "tocsin token create NAME --scopes %s --config " + path
	switch {
	case len(scopes) == 0:
		return []Check{bad(aboutStored, check, fmt.Sprintf(command, api.ScopeIngest), "there is no API token, so nothing can send an alert and serve does not start")}
	case !may(api.ScopeIngest):
		return []Check{warn(aboutStored, check, fmt.Sprintf(command, api.ScopeIngest), "no token may send alerts")}
	case !may(api.ScopeOperate):
		return []Check{warn(aboutStored, check, fmt.Sprintf(command, api.ScopeOperate), "no token may acknowledge or decide: people have the chats' buttons only")}
	}
	return []Check{ok(aboutStored, check, "%s, in the file, its sources and the database", count(len(scopes), "token"))}
}

// judgePauses says what rests, and whose credentials are refused. A breaker that was found with another file counts too: who
// has mended it by this file sees so in the notifier's own lines.
func judgePauses(pauses []store.Pause, f *config.File) []Check {
	var all []Check
	seen := map[string]bool{}
	for _, p := range pauses {
		about := p.Notifier
		if _, known := f.Notifiers[about]; !known {
			about = aboutStored
		}
		fix := advice(p.Sentence)
		switch {
		case p.Scope == store.ScopeDestination:
			all = append(all, warn(about, "pause", orElse(fix, "nothing: it goes on by itself"), "%s rests until %s: %s", p.Destination, instant(p.Until), p.Reason))
		case p.Scope == store.ScopeLookUp:
			all = append(all, warn(about, "look-ups", orElse(fix, "nothing: they go on by themselves"), "they rest until %s: %s", instant(p.Until), p.Reason))
		case seen[p.Account]:
		default:
			seen[p.Account] = true
			all = append(all, bad(about, "breaker", orElse(fix, "mend the credentials"), "nothing goes out with the credentials of %s since %s: %s; asked again at %s",
				few(sharing(f, p)), instant(p.Since), p.Reason, instant(p.ProbeAt)))
		}
	}
	if len(all) == 0 {
		all = append(all, ok(aboutStored, "pauses", "nothing rests, and no breaker is open"))
	}
	return all
}

// sharing are the notifiers that a breaker keeps back.
func sharing(f *config.File, p store.Pause) []string {
	var all []string
	for name, n := range f.Notifiers {
		if n.Account() == p.Account {
			all = append(all, name)
		}
	}
	if len(all) == 0 {
		return []string{p.Notifier}
	}
	slices.Sort(all)
	return all
}

func instant(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func judgeDead(n int, more bool) Check {
	const check = "dead letters"
	if n == 0 {
		return ok(aboutStored, check, "none waits for a decision")
	}
	many := "1 delivery waits"
	switch {
	case more:
		many = fmt.Sprintf("more than %d deliveries wait", n)
	case n > 1:
		many = fmt.Sprintf("%d deliveries wait", n)
	}
	return warn(aboutStored, check, "tocsin deliveries list --state dead; each says what to do", "%s for a person's decision", many)
}

// advice is a sentence about a dead delivery, for where there is none.
func advice(sentence string) string {
	return strings.TrimRight(strings.TrimSuffix(strings.TrimSuffix(sentence, "."), "then send again"), " ,;")
}

func lead(n int) string {
	if n == 1 {
		return "leads"
	}
	return "lead"
}

// aboutPublicURL asks the address that people and chats are given whether tocsin is there. It may not run yet, or not be
// reachable from here: nothing of it is bad.
func (d *doctor) aboutPublicURL(ctx context.Context) []Check {
	base := d.file.Server.PublicURL
	u, err := url.Parse(base)
	if err != nil {
		return []Check{bad(aboutPublicURL, "address", "", "it is no URL")} // the file's check comes first
	}
	var all []Check
	if chats := d.callbacks(); len(chats) > 0 && config.PrivateHost(u.Hostname()) {
		all = append(all, warn(aboutPublicURL, "address", "give an address that the chats can reach, or leave buttons out", "%s is not on the internet, so the buttons of %s can't work", u.Host, few(chats)))
	}
	ctx, cancel := context.WithTimeout(ctx, publicTimeout)
	defer cancel()
	const check = "answer"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", nil)
	if err != nil {
		return append(all, bad(aboutPublicURL, check, "", "%s", err))
	}
	resp, err := d.HTTP.Do(req)
	if err != nil {
		var inner *url.Error
		if errors.As(err, &inner) {
			err = inner.Err
		}
		return append(all, warn(aboutPublicURL, check, "start serve; then look at name, certificate, proxy and firewall", "%s/healthz does not answer from here: %s", base, err))
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 100))
	switch {
	case resp.StatusCode == http.StatusOK && string(text) == "ok\n":
		return append(all, ok(aboutPublicURL, check, "%s is tocsin", base))
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest:
		return append(all, warn(aboutPublicURL, check, "name the address that it leads to: chats do not follow", "%s/healthz leads elsewhere (%d)", base, resp.StatusCode))
	}
	return append(all, warn(aboutPublicURL, check, "look at the proxy: all of this address must reach tocsin", "%s/healthz answers %d, and not as tocsin does", base, resp.StatusCode))
}

// callbacks are the notifiers whose chats call tocsin when a button is pressed.
func (d *doctor) callbacks() []string {
	var all []string
	for name, n := range d.file.Notifiers {
		if !n.Off && (n.SigningSecret != "" || n.WebhookSecret != "") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}
