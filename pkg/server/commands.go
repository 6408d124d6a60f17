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

	"github.com/google/uuid"

	"github.com/tocsin-oncall/tocsin/pkg/config"
	"github.com/tocsin-oncall/tocsin/pkg/intake"
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
		return answer{text: fmt.Sprintf("This account is linked to %s (%s). %s", userName(s.file(), u.ID), u.ID, helpText(h.Provider))}, nil
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

// who says who is on call now.
func (s *Server) who(ctx context.Context, schedule string) (string, error) {
	overrides, err := s.store.OverridesFrom(ctx, time.Now())
	if err != nil {
		return "", err
	}
	f := s.file().WithOverrides(overrides)
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
		return "There is no schedule " + plainName(schedule) + ": write the command without it to see all.", nil
	}
	return "The file has no schedule.", nil
}

// commandWord is one word of a command: with quotes in it, blanks belong to it.
var commandWord = regexp.MustCompile(`(?:[^\s"]|"(?:[^"\\]|\\.)*")+`)

// plainQuotes undoes what keyboards make of quotes.
var plainQuotes = strings.NewReplacer("“", `"`, "”", `"`, "„", `"`)

// silenceBy makes a silence: what it is about, then how long, then why.
func (s *Server) silenceBy(ctx context.Context, h deed, u config.User) (answer, error) {
	const usage = "Write what is to be kept back, how long, and why: silence alert.disk_full.# 2h new disks. Nothing was changed."
	text := plainQuotes.Replace(h.Text)
	n := intake.NewSilence{}
	for _, at := range commandWord.FindAllStringIndex(text, -1) {
		w := text[at[0]:at[1]]
		if d, err := config.ParseDuration(w); err == nil && d > 0 {
			n.For, n.Reason = d, strings.TrimSpace(text[at[1]:])
			break
		}
		if strings.ContainsAny(w, "=~") {
			n.Matchers = append(n.Matchers, w)
			continue
		}
		if n.Match != "" {
			return answer{text: usage}, nil
		}
		n.Match = w
	}
	if n.For == 0 || n.Match == "" && len(n.Matchers) == 0 {
		return answer{text: usage}, nil
	}
	by := intake.Actor{ID: "user:" + u.ID, Name: userName(s.file(), u.ID), Callback: h.key}
	id, err := s.intake.AddSilence(ctx, n, by)
	var wrong *intake.InputError
	switch {
	case errors.As(err, &wrong):
		return answer{text: fmt.Sprintf("%s: %s. Nothing was changed.", wrong.Field, strings.TrimSuffix(wrong.Message, "."))}, nil
	case err != nil || id == uuid.Nil:
		return answer{}, err
	}
	s.log.Infow("silence made", "silence", id.String(), "by", by.ID, "through", h.Provider)
	until := "for " + n.For.String()
	return answer{text: fmt.Sprintf("Silenced %s: what matches is stored and sent to nobody. End it before with `tocsin silences end %s`.", until, id)}, nil
}

// overrideBy puts somebody on call from now on for a while: the one who writes it, where no other user is named.
func (s *Server) overrideBy(ctx context.Context, h deed, u config.User) (answer, error) {
	const usage = "Write the schedule, whom if not you, and how long: override primary 2h, or override primary ana 2h swapped with me. Nothing was changed."
	n := intake.NewOverride{User: u.ID}
	words := strings.Fields(h.Text)
	if len(words) < 2 {
		return answer{text: usage}, nil
	}
	schedule, rest := words[0], words[1:]
	d, err := config.ParseDuration(rest[0])
	if err != nil && len(rest) > 1 {
		n.User, rest = strings.TrimPrefix(rest[0], "user:"), rest[1:]
		d, err = config.ParseDuration(rest[0])
	}
	if err != nil || d < time.Second {
		return answer{text: usage}, nil //nolint:nilerr // that is the answer
	}
	n.For, n.Reason = d, strings.Join(rest[1:], " ")
	by := intake.Actor{ID: "user:" + u.ID, Name: userName(s.file(), u.ID), Callback: h.key}
	id, err := s.intake.AddOverride(ctx, schedule, n, by)
	var wrong *intake.InputError
	switch {
	case errors.Is(err, intake.ErrNoSchedule):
		return answer{text: "There is no schedule " + plainName(schedule) + ". Nothing was changed."}, nil
	case errors.As(err, &wrong):
		return answer{text: fmt.Sprintf("%s: %s. Nothing was changed.", wrong.Field, strings.TrimSuffix(wrong.Message, "."))}, nil
	case err != nil || id == uuid.Nil:
		return answer{}, err
	}
	s.overridden()
	s.log.Infow("override made", "override", id.String(), "schedule", schedule, "user", n.User, "by", by.ID, "through", h.Provider)
	return answer{text: fmt.Sprintf("%s is on call for %s for %s from now on. End it before with `tocsin schedules end %s %s`.", userName(s.file(), n.User), schedule, n.For, schedule, id)}, nil
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
