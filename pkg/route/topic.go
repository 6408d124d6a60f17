package route

import (
	"strings"
	"unicode"
)

// Word cleans a word from outside so that it is exactly one word of a topic: lower case, each dot, blank and control
// character an underscore, and "none" where nothing is left after trimming blanks. A wildcard in a job's name stays an
// ordinary character: only patterns know wildcards.
func Word(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return "none"
	}
	return strings.Map(func(r rune) rune {
		if r == '.' || unicode.IsSpace(r) || unicode.IsControl(r) {
			return '_'
		}
		return unicode.ToLower(r)
	}, s)
}

// Topic is the topic of an alert: alert.<kind>.<criticality>.<job>, each word cleaned.
func Topic(kind, criticality, job string) string {
	return "alert." + Word(kind) + "." + Word(criticality) + "." + Word(job)
}
