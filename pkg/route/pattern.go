// Package route decides which alerts a route takes: topic patterns and label matchers. It is pure.
//
// A topic is a row of words with dots between them, `alert.<kind>.<criticality>.<job>`. Words from outside are cleaned
// by [Word] first, so that a dot or a blank in a job's name cannot make a topic of another length.
package route

import (
	"fmt"
	"strings"
)

// The wildcards. Each stands for whole words, never for a part of one.
const (
	oneWord  = "*"
	anyWords = "#"
)

// Pattern is a checked topic pattern: words with dots between them, where `*` stands for exactly one word and `#` for
// any number of words, none included. Either may stand anywhere and several times. The zero Pattern takes no topic.
type Pattern struct {
	text  string
	words []string
}

// ParsePattern checks s. It refuses an empty pattern, an empty word, blanks, and a wildcard that is only a part of a
// word. Topics are lower case, so the pattern's words are too: `Alert.#` is the same pattern as `alert.#`.
func ParsePattern(s string) (Pattern, error) {
	if s == "" {
		return Pattern{}, fmt.Errorf("the pattern is empty; write # to take every topic")
	}
	words := strings.Split(strings.ToLower(s), ".")
	for i, w := range words {
		switch {
		case w == "":
			return Pattern{}, fmt.Errorf("word %d of the pattern %q is empty; write * for any one word, # for any number of words", i+1, s)
		case w == oneWord || w == anyWords:
		case strings.ContainsAny(w, oneWord+anyWords):
			return Pattern{}, fmt.Errorf("word %d of the pattern %q is %q: * and # stand for whole words, not for parts of one", i+1, s, w)
		case Word(w) != w:
			return Pattern{}, fmt.Errorf("word %d of the pattern %q is %q, which no topic can have: words from outside are cleaned, write %q", i+1, s, w, Word(w))
		}
	}
	return Pattern{text: s, words: words}, nil
}

// String is the pattern as it was written.
func (p Pattern) String() string { return p.text }

// Match says whether the pattern takes the topic. The empty topic has no words.
//
// Only the last `#` seen is ever extended: whatever an earlier one could take, the later one can take in its place. So
// the time is at most proportional to the topic's length times the pattern's, however many wildcards there are, and
// nothing is allocated.
func (p Pattern) Match(topic string) bool {
	if len(p.words) == 0 {
		return false
	}
	at, word := 0, 0             // offset in the topic of the next word; index of the next pattern word
	retryAt, retryWord := -1, -1 // where the last # takes one word more, and what must follow it
	for at <= len(topic) && topic != "" {
		if word < len(p.words) && p.words[word] == anyWords {
			word++
			retryAt, retryWord = at, word
			continue
		}
		end := wordEnd(topic, at)
		if word < len(p.words) && (p.words[word] == oneWord || p.words[word] == topic[at:end]) {
			at, word = end+1, word+1
			continue
		}
		if retryWord < 0 {
			return false
		}
		retryAt = wordEnd(topic, retryAt) + 1
		at, word = retryAt, retryWord
	}
	for word < len(p.words) && p.words[word] == anyWords {
		word++
	}
	return word == len(p.words)
}

// wordEnd is the offset just behind the word that begins at the offset at.
func wordEnd(topic string, at int) int {
	if i := strings.IndexByte(topic[at:], '.'); i >= 0 {
		return at + i
	}
	return len(topic)
}
