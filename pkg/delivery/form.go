package delivery

import "strings"

// Form is what an effect has lost on its way to be accepted: what a provider refused is left out once, and the same effect is
// tried again at once. The zero value is the whole message.
type Form struct {
	NoMetadata bool // without the mark by which it could be found again
	NoButtons  bool // without buttons
	Plain      bool // text alone: neither blocks nor markup, and no buttons
	Root       bool // a reply as a message of its own: its parent takes no replies
}

// Part names what of a message a provider refuses, where it says that.
type Part string

// The parts. The empty one is the whole content.
const (
	PartMetadata Part = "metadata"
	PartButtons  Part = "buttons"
)

// formWords name the losses, in the order in which a row lists them.
var formWords = []struct {
	word string
	of   func(*Form) *bool
}{
	{"no_metadata", func(f *Form) *bool { return &f.NoMetadata }},
	{"no_buttons", func(f *Form) *bool { return &f.NoButtons }},
	{"plain", func(f *Form) *bool { return &f.Plain }},
	{"root", func(f *Form) *bool { return &f.Root }},
}

// String is the form as rows and views show it: "" for the whole message, else its losses, "no_metadata plain".
func (f Form) String() string {
	var words []string
	for _, w := range formWords {
		if *w.of(&f) {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, " ")
}

// ParseForm reads what String wrote. Words of a newer version are passed over.
func ParseForm(s string) Form {
	var f Form
	for _, word := range strings.Fields(s) {
		for _, w := range formWords {
			if w.word == word {
				*w.of(&f) = true
			}
		}
	}
	return f
}

// less is the form after one more refusal of the content. False: there is nothing left to leave out.
func (f Form) less(refused Part) (Form, bool) {
	switch {
	case refused == PartMetadata && !f.NoMetadata:
		f.NoMetadata = true
	case refused == PartButtons && !f.NoButtons && !f.Plain:
		f.NoButtons = true
	case !f.Plain:
		f.Plain = true
	default:
		return f, false
	}
	return f, true
}
