package card

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tocsin-oncall/tocsin/pkg/message"
)

// The types of timeline entries.
const (
	EntryOpened         = "opened"
	EntryAlertFiring    = "alert_firing"
	EntryAlertResolved  = "alert_resolved"
	EntryAcknowledged   = "acknowledged"
	EntryPaged          = "paged"
	EntryUnreachable    = "unreachable"
	EntryNotified       = "notified"
	EntryQuietHours     = "quiet_hours"
	EntryUrgent         = "urgent"
	EntryRings          = "rings_again"
	EntryHandedOver     = "handed_over"
	EntryTruncated      = "truncated"
	EntryNobodyAnswered = "nobody_answered"
	EntryQuiet          = "quiet"
	EntrySilenced       = "silenced"
	EntrySilenceOver    = "silence_over"
	EntryHours          = "hours"
	EntryKeptBack       = "kept_back"
	EntryResolved       = "resolved"
	EntrySnoozed        = "snoozed"
	EntrySnoozeOver     = "snooze_over"
	EntryEscalated      = "escalated"
	EntryReassigned     = "reassigned"
)

// OpenedText says what an incident was opened for.
func OpenedText(title, criticality string, alerts int) string {
	text := "Opened: " + title
	if criticality != "" && criticality != "none" {
		text += " (" + criticality + ")"
	}
	if alerts > 1 {
		text += ", " + counted(alerts, "alert")
	}
	return text
}

// AlertText says that one alert began or ceased to fire. detail is what tells it apart, and may be empty.
func AlertText(firing bool, title, detail string) string {
	text := "Alert resolved: " + title
	if firing {
		text = "Alert firing: " + title
	}
	if detail != "" {
		text += " (" + clip(detail, maxDetail) + ")"
	}
	return text
}

// Detail is what tells an alert apart from the others of its incident: the labels that are not common to all.
func Detail(labels, common map[string]string) string { return detail(Alert{Labels: labels}, common) }

// AcknowledgedText says who answered and how fast.
func AcknowledgedText(name string, after time.Duration, reason string) string {
	return because("Acknowledged by "+name+" after "+Duration(after), reason)
}

// ResolvedText says who ended an incident and how long it took. name is empty where its source did.
func ResolvedText(name string, after time.Duration, reason string) string {
	text := "Resolved"
	if name != "" {
		text += " by " + name
	}
	return because(text+" after "+Duration(after), reason)
}

// SnoozedText says who put an incident off, and until when.
func SnoozedText(name string, until time.Time, reason string) string {
	return because("Snoozed by "+name+" until "+instant(until), reason)
}

// RingsAgainText is what an acknowledgement says more that holds for a time only.
func RingsAgainText(d time.Duration) string {
	return "; it rings again after " + Duration(d) + " unless it is resolved by then"
}

// RingsText says that the time of an acknowledgement is over.
func RingsText(name string, d time.Duration) string {
	return "Acknowledged by " + name + " " + Duration(d) + " ago and not resolved: it rings again"
}

// SnoozeOverText says that an incident that was put off rings again.
func SnoozeOverText(name string) string {
	return "The snooze of " + name + " is over and it is not resolved: it rings again"
}

// EscalatedText says who asked for more people.
func EscalatedText(name, reason string) string { return because("Escalated by "+name, reason) }

// ReassignedText says who gave an incident to whom.
func ReassignedText(name, to, reason string) string {
	return because("Reassigned by "+name+" to "+to, reason)
}

// because adds a person's reason.
func because(text, reason string) string {
	if reason = strings.TrimSpace(reason); reason == "" {
		return text
	}
	return text + ": " + reason
}

// PagingText says who is paged, why, and by which ways: "Paging Ana Torres (primary) by slack-dm, telegram-dm in 2 min".
func PagingText(name, why string, ways []string) string {
	text := "Paging " + name
	if why != "" {
		text += " (" + why + ")"
	}
	if len(ways) > 0 {
		text += " by " + strings.Join(ways, ", ")
	}
	return text
}

// UnreachableText says that a step reaches nobody, and why.
func UnreachableText(sentence string) string { return "Page not possible: " + sentence }

// QuietText says that somebody is left alone for now. The time is that of their own wall.
func QuietText(name string, until time.Time) string {
	return fmt.Sprintf("%s has quiet hours until %s", name, until.Format("Mon 15:04 MST"))
}

// RestText says that an escalation rests, since all whom its step pages have quiet hours.
func RestText(escalation string, asleep []string) string {
	return strings.Join(asleep, "; ") + ": it is not urgent, and the escalation " + escalation + " goes on then"
}

// UrgentText says that an escalation rests no longer.
const UrgentText = "It has become urgent: the escalation waits for no quiet hours"

// HandedOverText says that somebody else is meant by now, while a page to the one before may have arrived.
func HandedOverText(name, why, way string) string {
	return PagingText(name, why, []string{way}) + ": an earlier page, to whom it was before, may have arrived and goes on"
}

// notified begins the text of an entry of type notified; the notifiers' names follow.
const notified = "Still unanswered, telling "

// NotifiedText says that an escalation step told notifiers that have the card already.
func NotifiedText(notifiers []string) string { return notified + strings.Join(notifiers, ", ") }

// Tells says that an entry is meant for a notifier's whole channel, not for the card's thread alone.
func Tells(e Entry, notifier string) bool {
	names, ok := strings.CutPrefix(e.Text, notified)
	return ok && e.Type == EntryNotified && slices.Contains(strings.Split(names, ", "), notifier)
}

// TruncatedText says that the source left alerts out, and what follows from it.
func TruncatedText(n int) string { return truncatedText(n) }

func truncatedText(n int) string {
	return fmt.Sprintf("The source left %s out of its last message, so their state is not known: the incident stays open until a complete message says that all are resolved, or a person resolves it.", counted(n, "alert"))
}

// NobodyAnsweredText says that an escalation came to its end.
func NobodyAnsweredText(name string, rounds int) string {
	return fmt.Sprintf("Nobody answered: escalation %s ended after %s", name, counted(rounds, "round"))
}

// maxDigest bounds the lines of one digest; the newest matter most, the first says how it began.
const maxDigest = 20

// Replies is what a thread posts next: one entry as it stands, or several as one digest with their times. The one that
// ends the incident contains "Resolved".
func Replies(s Snapshot, entries []Entry, o Options) message.Message {
	m := message.Message{Footer: o.footer()}
	switch len(entries) {
	case 0:
		return m
	case 1:
		m.Title = line(entries[0])
		return m
	}
	m.Title = counted(len(entries), "update")
	if last := entries[len(entries)-1]; last.Type == EntryResolved {
		m.Title = line(last)
	}
	var lines []string
	for i, e := range entries {
		if skipped := len(entries) - maxDigest; skipped > 0 && i > 0 && i <= skipped {
			if i == skipped {
				lines = append(lines, fmt.Sprintf("… and %d more", skipped))
			}
			continue
		}
		lines = append(lines, clock(e.At, s.OpenedAt)+"  "+line(e))
	}
	m.Text = strings.Join(lines, "\n")
	return m
}

// line is one entry in words. Each type says something even where the text is missing.
func line(e Entry) string {
	if e.Text != "" {
		return e.Text
	}
	return strings.ToUpper(e.Type[:min(1, len(e.Type))]) + strings.ReplaceAll(e.Type[min(1, len(e.Type)):], "_", " ")
}
