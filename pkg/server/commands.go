package server

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/card"
	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
	"github.com/tocsin-oncall/tocsin/pkg/oncall"
	"github.com/tocsin-oncall/tocsin/pkg/store"
)

// applyCommand does what somebody wrote to tocsin in a chat. All but linking needs an account that is linked.
func (s *Server) applyCommand(ctx context.Context, h deed) (answer, error) {
	known := []string{"who", "override", "silence", "link", "start", "help"}
	if !h.Alone && !slices.Contains(known, h.Command) {
		return answer{}, nil // in a group it may have been meant for somebody else
	}
	u, linked, err := s.person(ctx, h.Provider, h.Account)
	if err != nil {
		return answer{}, err
	}
	switch {
	case (h.Command == "link" || h.Command == "start") && h.Code != "":
		return s.handIn(ctx, h)
	case !linked:
		return s.introduce(ctx, h)
	}
	switch h.Command {
	case "who":
		text, err := s.who(ctx, h.Text)
		return answer{text: text}, err
	case "silence":
		return s.silenceBy(ctx, h, u)
	case "override":
		return s.overrideBy(ctx, h, u)
	case "link", "start":
		return answer{text: fmt.Sprintf("This account is linked to %s (%s).\n%s", userName(s.file(), u.ID), u.ID, helpText(h.Provider))}, nil
	}
	if h.Command != "help" {
		return answer{text: fmt.Sprintf("There is no command %s.\n", plainName(h.Command)) + helpText(h.Provider)}, nil
	}
	return answer{text: helpText(h.Provider)}, nil
}

// sign is what a command begins with in a chat.
func sign(chat string) string {
	if chat == "slack" {
		return "/tocsin "
	}
	return "/"
}

// helpText lists the commands as that chat writes them.
func helpText(chat string) string {
	sign := sign(chat)
	return strings.Join([]string{
		"You can write:",
		sign + "who [SCHEDULE]: who is on call",
		sign + "override SCHEDULE [USER] FOR [REASON]: you, or that person, are on call instead, for example " + sign + "override primary 2h",
		sign + "silence PATTERN FOR REASON: keep alerts back, for example " + sign + "silence alert.disk_full.# 2h new disks, or with labels: " + sign + `silence env="staging" 2h load test`,
		sign + "link: link this account to you",
	}, "\n")
}

// manned is the file with the overrides that hold now.
func (s *Server) manned(ctx context.Context) (*config.File, error) {
	overrides, err := s.store.OverridesFrom(ctx, time.Now())
	if err != nil {
		return nil, err
	}
	return s.file().WithOverrides(overrides), nil
}

// who says who is on call now.
func (s *Server) who(ctx context.Context, schedule string) (string, error) {
	f, err := s.manned(ctx)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, sch := range f.Schedules {
		if schedule != "" && sch.ID != schedule {
			continue
		}
		o := onCallNow(f, sch, time.Now())
		var names []string
		for _, u := range o.Users {
			names = append(names, u.Name)
		}
		line := sch.ID + ": nobody"
		if len(names) > 0 {
			line = sch.ID + ": " + strings.Join(names, ", ")
		}
		if o.Until != nil {
			line += " until " + o.Until.In(sch.Zone).Format("Mon 2 Jan 15:04 MST")
		}
		lines = append(lines, line)
	}
	switch {
	case len(lines) > 0:
		return strings.Join(lines, "\n"), nil
	case schedule != "":
		return noSuchSchedule(f, schedule), nil
	}
	return "The file has no schedule.", nil
}

// commandWord is one word of a command: with quotes in it, blanks belong to it.
var commandWord = regexp.MustCompile(`(?:[^\s"]|"(?:[^"\\]|\\.)*")+`)

// plainQuotes undoes what keyboards make of quotes.
var plainQuotes = strings.NewReplacer("“", `"`, "”", `"`, "„", `"`)

// unchanged ends an answer to a command that could not be understood.
const unchanged = " Nothing was changed."

// refusedInput is what to answer where intake refuses what a command asks for: its words say what is meant by themselves.
func refusedInput(e *intake.InputError) answer {
	first, size := utf8.DecodeRuneInString(e.Message)
	return answer{text: string(unicode.ToUpper(first)) + strings.TrimSuffix(e.Message[size:], ".") + "." + unchanged}
}

// howLong reads the length of time that a word of a command gives, and says what is wrong with it.
func howLong(word string) (time.Duration, string) {
	d, err := config.ParseDuration(word)
	switch {
	case err != nil:
		return 0, fmt.Sprintf("%q is no length of time: write 30m, 2h or 1d.", plainName(word))
	case d < time.Second:
		return 0, fmt.Sprintf("%q is too short.", plainName(word))
	}
	return d, ""
}

func isTime(word string) bool {
	_, err := config.ParseDuration(word)
	return err == nil
}

// silenceBy makes a silence: what it is about, then how long, then why.
func (s *Server) silenceBy(ctx context.Context, h deed, u config.User) (answer, error) {
	usage := "Write what is to be kept back, how long, and why: " + sign(h.Provider) + "silence alert.disk_full.# 2h new disks."
	text := plainQuotes.Replace(h.Text)
	n := intake.NewSilence{}
	what := ""
	for _, at := range commandWord.FindAllStringIndex(text, -1) {
		w := text[at[0]:at[1]]
		if _, wrong := howLong(w); wrong == "" {
			n.For, _ = config.ParseDuration(w)
			what, n.Reason = strings.TrimSuffix(strings.TrimSpace(text[:at[0]]), " for"), strings.TrimSpace(text[at[1]:])
			break
		}
		switch {
		case w == "for": // as people write it
		case strings.ContainsAny(w, "=~"):
			n.Matchers = append(n.Matchers, w)
		case n.Match == "":
			n.Match = w
		default:
			_, wrong := howLong(w)
			return answer{text: wrong + " " + usage + unchanged}, nil
		}
	}
	switch {
	case n.Match == "" && len(n.Matchers) == 0, n.For == 0:
		return answer{text: usage + unchanged}, nil
	case strings.Count(what, `"`)%2 != 0:
		return answer{text: `A quotation mark is not closed: write env="staging".` + unchanged}, nil
	case n.Match != "" && !slices.Contains([]string{"alert", "*", "#"}, strings.Split(n.Match, ".")[0]):
		return answer{text: fmt.Sprintf("No alert has the topic %s: topics are alert.KIND.CRITICALITY.JOB. Write alert.%[1]s.# for a kind, a label as NAME=\"VALUE\", or # for all.", plainName(n.Match)) + unchanged}, nil
	}
	by := intake.Actor{ID: "user:" + u.ID, Name: userName(s.file(), u.ID), Callback: h.key}
	id, err := s.intake.AddSilence(ctx, n, by)
	var wrong *intake.InputError
	switch {
	case errors.As(err, &wrong):
		return refusedInput(wrong), nil
	case err != nil || id == uuid.Nil:
		return answer{}, err
	}
	s.log.Infow("silence made", "silence", id.String(), "by", by.ID, "through", h.Provider)
	return answer{text: fmt.Sprintf("Silenced for %s: %s. What matches is stored and sent to nobody. End it before with `tocsin silences end %s`.", card.Duration(n.For), plainName(what), id)}, nil
}

// overrideBy puts somebody on call from now on for a while: the one who writes it, where no other user is named. Where nobody is on call
// at that moment, it is to be covered: the override is for gaps as well.
func (s *Server) overrideBy(ctx context.Context, h deed, u config.User) (answer, error) {
	example := sign(h.Provider) + "override primary"
	usage := fmt.Sprintf("Write the schedule, whom if not you, and how long: %s 2h, or %[1]s ana 2h swapped with me.", example)
	n := intake.NewOverride{User: u.ID}
	words := strings.Fields(h.Text)
	if len(words) == 0 {
		return answer{text: usage + unchanged}, nil
	}
	f, err := s.manned(ctx)
	if err != nil {
		return answer{}, err
	}
	sch, known := f.Schedule(words[0])
	if !known {
		return answer{text: noSuchSchedule(f, words[0]) + " " + usage + unchanged}, nil
	}
	rest := words[1:]
	if len(rest) > 0 && rest[0] != "for" {
		if !isTime(rest[0]) {
			n.User, rest = strings.TrimPrefix(strings.TrimPrefix(rest[0], "@"), "user:"), rest[1:]
		}
	}
	if len(rest) > 1 && rest[0] == "for" {
		rest = rest[1:]
	}
	if _, ok := f.User(n.User); !ok {
		wrong := ""
		if len(rest) == 0 || !isTime(rest[0]) { // it may have been meant for the time
			_, wrong = howLong(words[1])
			wrong = " " + wrong
		}
		return answer{text: fmt.Sprintf("There is no user %s. There are: %s.", plainName(n.User), listed(f.Users, func(u config.User) string { return u.ID })) + wrong + unchanged}, nil
	}
	if len(rest) == 0 {
		return answer{text: "For how long? " + usage + unchanged}, nil
	}
	d, bad := howLong(rest[0])
	if bad != "" {
		return answer{text: bad + unchanged}, nil
	}
	n.For, n.Reason = d, strings.Join(rest[1:], " ")
	n.Add = len(onCallNow(f, sch, time.Now()).Users) == 0
	by := intake.Actor{ID: "user:" + u.ID, Name: userName(s.file(), u.ID), Callback: h.key}
	id, err := s.intake.AddOverride(ctx, sch.ID, n, by)
	var wrong *intake.InputError
	switch {
	case errors.Is(err, intake.ErrNoSchedule):
		return answer{text: noSuchSchedule(f, sch.ID) + unchanged}, nil
	case errors.As(err, &wrong):
		return refusedInput(wrong), nil
	case err != nil || id == uuid.Nil:
		return answer{}, err
	}
	s.overridden()
	s.log.Infow("override made", "override", id.String(), "schedule", sch.ID, "user", n.User, "by", by.ID, "through", h.Provider)
	gaps := ""
	if n.Add {
		gaps = " Nobody was: gaps in this time are covered as well."
	}
	return answer{text: fmt.Sprintf("%s is on call for %s for %s from now on.%s End it before with `tocsin schedules end %s %s`.", userName(s.file(), n.User), sch.ID, card.Duration(n.For), gaps, sch.ID, id)}, nil
}

// noSuchSchedule says which schedules there are.
func noSuchSchedule(f *config.File, name string) string {
	return fmt.Sprintf("There is no schedule %s. There are: %s.", plainName(name), listed(f.Schedules, func(s oncall.Schedule) string { return s.ID }))
}

// mostListed bounds what an answer names.
const mostListed = 30

// listed names all of a list, or the first of very many.
func listed[T any](all []T, name func(T) string) string {
	var names []string
	for i, one := range all {
		if i == mostListed {
			names = append(names, fmt.Sprintf("and %d more", len(all)-mostListed))
			break
		}
		names = append(names, name(one))
	}
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// introduce tells somebody whom nobody knows how to be known.
func (s *Server) introduce(ctx context.Context, h deed) (answer, error) {
	code, offered, err := s.showCode(ctx, h, store.Press{})
	if err != nil || !offered {
		return answer{}, err
	}
	return answer{text: s.introduction(code, false)}, nil
}

func (s *Server) introduction(code string, pressed bool) string {
	then := ""
	if pressed {
		then = ", and then the button that you pressed is applied"
	}
	return fmt.Sprintf("tocsin does not know yet who you are. Open %s within 15 minutes: it says how this account is linked to you%s.", s.linkURL(code), then)
}

// handIn takes a one-time code from a chat. One that was made for a user links the account; one that the account itself was shown
// when it pressed a button is told again, in words that can be copied.
func (s *Server) handIn(ctx context.Context, h deed) (answer, error) {
	hash, err := hex.DecodeString(h.Code)
	if err != nil {
		return answer{}, err
	}
	shown, err := s.store.ReadLinkCode(ctx, hash)
	switch {
	case err == nil && shown.Provider == h.Provider && shown.AccountID == h.Account:
		code, offered, err := s.showCode(ctx, h, shown.Press)
		if err != nil || !offered {
			return answer{}, err
		}
		return answer{text: s.introduction(code, shown.Press.Action != "")}, nil
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return answer{}, err
	}
	var user string
	first := false
	var waiting []store.Callback
	err = s.store.InTx(ctx, func(tx *store.Tx) error {
		var by string
		if first, err = tx.Callback(ctx, h.key); err != nil || !first {
			return err
		}
		if user, by, err = tx.TakeInvitation(ctx, hash); err != nil {
			return err
		}
		if !hasUser(s.file(), user) {
			return store.ErrNotFound
		}
		waiting, err = s.join(ctx, tx, h.Provider, h.Account, user, by)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound):
		return answer{text: "This code is unknown, used already or older than 15 minutes. Write " + sign(h.Provider) + "link without a code: the answer says how to go on."}, nil
	case err != nil || !first:
		return answer{}, err
	}
	return answer{text: s.linkedText(h.Provider, user, s.afterLink(ctx, h.Provider, h.Account, user, waiting))}, nil
}
