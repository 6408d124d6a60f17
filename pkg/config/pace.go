package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/pace"
)

// Pace is how often a notifier may call. The zero rules limit nothing.
type Pace struct {
	Destination pace.Rule // each channel, chat or URL
	Group       pace.Rule // telegram: each group chat, besides
	Account     pace.Rule // all destinations of the same credentials together
}

// The paces of the types that the file says nothing of, from the providers' own documentation: Slack shows no more than
// about one message a second in a channel, Telegram asks for one a second in a chat, 20 a minute in a group and 30 a second
// for a bot.
var defaultPace = map[string]Pace{
	"slack":    {Destination: pace.Rule{Count: 1, Per: time.Second}},
	"telegram": {Destination: pace.Rule{Count: 1, Per: time.Second}, Group: pace.Rule{Count: 20, Per: time.Minute}, Account: pace.Rule{Count: 30, Per: time.Second}},
}

// paceOf reads a notifier's pace: `off`, or a rule for each thing that is paced.
func paceOf(o *object, kind string) Pace {
	p := defaultPace[kind]
	v := o.get("pace")
	if !v.present() {
		return p
	}
	const how = "write pace: off, or pace: {destination: 1/s}"
	switch kind := kindOf(v.node); kind {
	case "a mapping":
	case "a list":
		v.problem(how, "pace must be off or a mapping, it is %s", kind)
		return Pace{}
	default:
		if s, ok := v.text(); ok && s != "off" {
			v.problem(how, "pace %q is neither off nor a mapping", s)
		}
		return Pace{}
	}
	rules := v.object()
	for key, r := range map[string]*pace.Rule{"destination": &p.Destination, "group": &p.Group, "account": &p.Account} {
		if key == "group" && kind != "telegram" {
			continue
		}
		v := rules.get(key)
		s, ok := v.text()
		if !ok {
			continue
		}
		rule, err := ParseRate(s)
		if err != nil {
			v.problem("write 1/s, 20/m or 5/10s, or off", "%s %q: %s", key, s, err)
			continue
		}
		*r = rule
	}
	rules.done(map[string]string{"group": "it belongs to the type telegram"})
	return p
}

// ParseRate reads how often something may happen: a whole number, a slash, and a unit (s, m, h) or a duration. off is the
// zero rule.
func ParseRate(s string) (pace.Rule, error) {
	if s == "off" {
		return pace.Rule{}, nil
	}
	count, per, ok := strings.Cut(s, "/")
	if !ok {
		return pace.Rule{}, fmt.Errorf("it has no slash")
	}
	n, err := strconv.Atoi(count)
	if err != nil || n < 1 || n > 1000 {
		return pace.Rule{}, fmt.Errorf("%q is not a whole number from 1 to 1000", count)
	}
	span := per
	if len(per) == 1 {
		span = "1" + per // a unit alone
	}
	d, err := ParseDuration(span)
	if err != nil {
		return pace.Rule{}, fmt.Errorf("%q behind the slash is neither a unit nor a duration", per)
	}
	if d < 10*time.Millisecond || d > 24*time.Hour {
		return pace.Rule{}, fmt.Errorf("%s does not lie between 10ms and 24h", per)
	}
	return pace.Rule{Count: n, Per: d}, nil
}

// Account is a name for the notifier's credentials that tells nothing of them: notifiers with the same ones share it, on
// all replicas. What is sent through it shares pace, pauses and breaker.
func (n Notifier) Account() string {
	if n.account != "" {
		return n.account
	}
	h := sha256.New()
	for _, s := range []string{n.Type, n.APIURL, n.Token, n.WebhookURL, n.URL, n.Path} {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return n.Type + ":" + hex.EncodeToString(h.Sum(nil))[:16]
}

// Queue is the key of one destination. The address is as attempts name it, without secrets.
func (n Notifier) Queue(address string) string { return n.Account() + "/" + address }

// Buckets are what a call to an address is paced by, the destination first.
func (n Notifier) Buckets(address string) []pace.Bucket {
	var out []pace.Bucket
	rules := make([]pace.Rule, 0, 2)
	if !n.Pace.Destination.None() {
		rules = append(rules, n.Pace.Destination)
	}
	// The number of a group or channel is negative, and a bot can name nothing else by @name.
	if n.Type == "telegram" && (strings.HasPrefix(address, "-") || strings.HasPrefix(address, "@")) && !n.Pace.Group.None() {
		rules = append(rules, n.Pace.Group)
	}
	if len(rules) > 0 {
		out = append(out, pace.Bucket{Key: n.Queue(address), Rules: rules})
	}
	if !n.Pace.Account.None() {
		out = append(out, pace.Bucket{Key: n.Account(), Rules: []pace.Rule{n.Pace.Account}})
	}
	return out
}
