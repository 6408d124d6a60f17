package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// Text makes a provider's text fit to be kept: secrets out, valid UTF-8, no NUL (Postgres refuses it).
func (r Record) Text(s string) string { return clean(r.redact, s) }

// Answer is the first MaxAnswer bytes of the body, fit to be kept. Secrets go out before the cut, which could
// otherwise leave half of one.
func (r Record) Answer() string {
	s := clean(r.redact, string(r.Body[:min(len(r.Body), maxClean+1)]))
	if len(s) > MaxAnswer {
		s = strings.ToValidUTF8(s[:MaxAnswer], "") // only the last rune can be broken
	}
	return s
}

func (r Record) clean(res delivery.Result) delivery.Result {
	res.Error, res.Sentence = r.short(res.Error, 1000), r.short(res.Sentence, 1000)
	res.Code, res.Reason = r.short(res.Code, 80), r.short(res.Reason, 100)
	return res
}

// short is text fit to be kept that a person can still read: a provider may quote a whole request in an error.
func (r Record) short(s string, limit int) string {
	return message.Fit(r.Text(s), limit, message.CodePoints)
}

// Clean makes all the text of a result that a provider has filled in fit to be kept.
func (r Record) Clean(res delivery.Result) delivery.Result { return r.clean(res) }

// The bounds of what is redacted. Looking for secrets in every escaped form costs time for each escape sign, and a provider
// may answer with a mebibyte of them; more than the first kilobytes is never kept. What stands at the cut may be half a
// secret, so the end goes too.
const (
	maxClean = 8 << 10
	cutClean = 4 << 10
)

func clean(red Redactor, s string) string {
	if len(s) > maxClean {
		s = cleaned(red, s[:maxClean])
		return strings.ToValidUTF8(s[:max(0, len(s)-cutClean)], "")
	}
	return cleaned(red, s)
}

func cleaned(red Redactor, s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "")
	if red != nil {
		s = red.String(s)
	}
	return s
}

// Hide adds secrets that red may not know, such as a token written into the file itself, in the forms in which they
// can come back: plain, URL-encoded, base64, JSON-escaped. Secrets under six bytes are left alone: they would tear
// holes into ordinary words.
func Hide(red Redactor, secrets ...string) Redactor {
	h := hider{next: red}
	var pairs []string
	for _, s := range secrets {
		if len(s) < 6 {
			continue
		}
		for _, form := range forms(s) {
			if !slices.Contains(pairs, form) {
				pairs = append(pairs, form)
			}
		}
	}
	// The longest first, so that no secret that begins with another is hidden in part.
	slices.SortFunc(pairs, func(a, b string) int { return len(b) - len(a) })
	var args []string
	for _, p := range pairs {
		args = append(args, p, "[secret]")
	}
	h.replacer = strings.NewReplacer(args...)
	return h
}

func forms(s string) []string {
	var js bytes.Buffer
	enc := json.NewEncoder(&js)
	_ = enc.Encode(s) // a string always encodes
	quoted := strings.TrimSpace(js.String())
	quoted = quoted[1 : len(quoted)-1]
	slashed := strings.ReplaceAll(quoted, "/", `\/`)
	return []string{
		s, url.QueryEscape(s), url.PathEscape(s), quoted, slashed,
		base64.StdEncoding.EncodeToString([]byte(s)), base64.URLEncoding.EncodeToString([]byte(s)),
		base64.RawStdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)),
	}
}

type hider struct {
	next     Redactor
	replacer *strings.Replacer
}

// String lets red go first, so that a secret with a name keeps it.
func (h hider) String(s string) string {
	if h.next != nil {
		s = h.next.String(s)
	}
	return h.replacer.Replace(s)
}
