package redact

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"strings"
)

const (
	minPart    = 9  // a URL's path and query, or a value in the query
	minSegment = 16 // one segment of a path, a line of a longer value: shorter ones are words
	minBase64  = 6  // characters of base64
)

// forms are the texts that give value away, each at least minLength long: itself, its base64, and its parts.
func forms(value string) []string {
	var all []string
	add := func(text string, least int) {
		if len(text) >= max(least, minLength) {
			all = append(all, text)
			all = append(all, inBase64(text)...)
		}
	}
	add(value, minLength)
	add(strings.TrimSpace(value), minLength) // what a header or a file's last line makes of it
	if strings.Contains(strings.TrimSpace(value), "\n") {
		for line := range strings.Lines(value) {
			add(strings.TrimSpace(line), minSegment)
		}
	}
	for _, part := range urlParts(strings.TrimSpace(value)) {
		add(part.text, part.least)
	}
	if m := passwordInDSN.FindStringSubmatch(value); m != nil {
		add(strings.Trim(m[1], "'"), minLength)
	}
	return all
}

// passwordInDSN finds the password in a connection string of the form "host=db user=x password=y".
var passwordInDSN = regexp.MustCompile(`(?i)(?:^|\s)password\s*=\s*('[^']*'|[^\s']+)`)

// part is a piece of a URL, secret if it has at least so many bytes.
type part struct {
	text  string
	least int
}

// urlParts are the secret pieces of a URL. Errors name a URL without its password, redirects without its host, and
// servers echo a path without its query or a query in another order.
func urlParts(value string) []part {
	u, err := url.Parse(value)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return nil
	}
	pathAndQuery := u.EscapedPath()
	parts := []part{{pathAndQuery, minPart}, {u.RawQuery, minPart}}
	if u.RawQuery != "" {
		parts = append(parts, part{pathAndQuery + "?" + u.RawQuery, minPart})
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		parts = append(parts, part{segment, minSegment})
	}
	for _, values := range u.Query() {
		for _, v := range values {
			parts = append(parts, part{v, minPart})
		}
	}
	parts = append(parts, part{u.Fragment, minPart})
	if password, ok := u.User.Password(); ok {
		parts = append(parts, part{password, minLength}, part{u.User.String(), minPart})
	} else {
		parts = append(parts, part{u.User.Username(), minPart}) // a token in the user's place
	}
	return parts
}

// inBase64 are the characters that text has in any base64, alone and within a longer text. Within one, three positions
// are possible, by the number of bytes before it modulo 3; the characters that a neighbour's bits are mixed into are not
// among them, so up to one byte's bits at either end stay.
func inBase64(text string) []string {
	var all []string
	add := func(s string) {
		if len(s) >= minBase64 {
			all = append(all, s)
		}
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		raw := enc.WithPadding(base64.NoPadding)
		add(enc.EncodeToString([]byte(text)))
		add(raw.EncodeToString([]byte(text)))
		for before := range 3 {
			whole := raw.EncodeToString([]byte(strings.Repeat("\x00", before) + text))
			mixed := []int{0, 2, 3}[before]
			full := (before + len(text)) * 8 / 6
			if mixed < full {
				add(whole[mixed:full])
			}
		}
	}
	return all
}
