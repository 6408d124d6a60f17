package telegram

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// verdict is what an answer means for one operation.
type verdict string

// The verdicts. With all but the last three nothing was made.
const (
	acct  verdict = "account"     // the token must be mended
	dest  verdict = "destination" // chat, topic or membership must be mended
	payl  verdict = "payload"     // the content is refused for good
	gone  verdict = "gone"        // what was to be edited or answered is not there
	moved verdict = "moved"       // the chat has another id now
	wait  verdict = "throttled"   // wait as told
	later verdict = "transient"   // try again after the backoff
	doubt verdict = "doubt"       // it may have had an effect
	same  verdict = "same"        // what was wanted is there already
)

// lookUp is every call that makes and changes nothing that people read: getMe, getChat, getChatMember, getWebhookInfo,
// answerCallbackQuery, and the deleting of an examination's own message.
const lookUp delivery.Operation = "look_up"

// row is what one of Telegram's answers means. Its codes are declared unstable, so an answer is matched on the code
// together with the beginning of the description, in lower case and without "Bad Request: " and the like.
type row struct {
	code     int
	prefix   string // "" takes every description of the code
	slug     string // short name for reasons
	create   verdict
	edit     verdict
	reply    verdict
	look     verdict
	refused  delivery.Part // with payl: what of the content alone is refused
	sentence string        // what a person should do; {place} is the address
}

const (
	addBot     = "add the bot to {place} and let it write there, then send again"
	unblock    = "the person must open the chat with the bot and press Start, then send again"
	newToken   = "copy the bot's token from @BotFather into the file and restart the replicas"
	ourContent = "Telegram refuses this content; it will not be sent again: please report it"
	ourButtons = "Telegram refuses the buttons of this message: please report it"
	anew       = "the message in {place} cannot be edited any more"
	orphan     = "the message in {place} that this answers is not there any more"
	topic      = "open the topic again, or set another message_thread_id in the file, then send again"
	elsewhere  = "the group became a supergroup: put its new chat_id into the file"
	inDoubt    = "it may have arrived, and Telegram cannot be asked: look into {place}"
)

// migrated are Telegram's words for a chat that has another id now.
const migrated = "group chat was upgraded to a supergroup chat"

// rows are the answers of Telegram's Bot API, by the descriptions in the code of its server, telegram-bot-api, and of
// the library below it, TDLib. They are searched in order.
//
// "Not modified" is a success of an edit only. An edit's or a reply's object that is gone is payload for a create, which
// stands under nothing. In a supergroup the numbers of messages begin anew: what was made in the group that it was can be
// neither edited nor answered there.
var rows = []row{
	//                                                                          create edit   reply  look
	{400, "message is not modified", "not_modified", payl, same, payl, same, "", ourContent},
	{400, "message_not_modified", "not_modified", payl, same, payl, same, "", ourContent},
	{400, "query is too old", "query_too_old", payl, payl, payl, same, "", ourContent},
	{400, "query_id_invalid", "query_too_old", payl, payl, payl, same, "", ourContent},

	{400, "message to edit not found", "message_not_found", payl, gone, gone, gone, "", anew},
	{400, "message can't be edited", "message_not_editable", payl, gone, gone, gone, "", anew},
	{400, "message_id_invalid", "message_not_found", payl, gone, gone, gone, "", anew},
	{400, "there is no text in the message to edit", "message_without_text", payl, gone, gone, gone, "", anew},
	{400, "message to be replied not found", "parent_not_found", payl, gone, gone, gone, "", orphan},
	{400, "replied message not found", "parent_not_found", payl, gone, gone, gone, "", orphan},
	{400, "reply message not found", "parent_not_found", payl, gone, gone, gone, "", orphan},
	{400, "message to delete not found", "message_not_found", payl, gone, gone, same, "", anew},
	{400, "message can't be deleted", "message_not_deletable", payl, gone, gone, gone, "", "delete the message in {place} by hand"},

	{400, migrated, "migrated", moved, moved, moved, moved, "", elsewhere},
	{400, "chat not found", "chat_not_found", dest, dest, dest, dest, "", "{place} is unknown to the bot: check the chat id, or " + addBot},
	{400, "private chat not found", "chat_not_found", dest, dest, dest, dest, "", unblock},
	{400, "chat_id is empty", "chat_id_empty", dest, dest, dest, dest, "", "set chat_id in the file, then send again"},
	{400, "not enough rights to send text messages to the chat", "no_rights", dest, dest, dest, dest, "", addBot},
	{400, "have no write access to the chat", "no_rights", dest, dest, dest, dest, "", addBot},
	{400, "need administrator rights in the channel chat", "no_rights", dest, dest, dest, dest, "", "make the bot an administrator of {place}, then send again"},
	{400, "chat_write_forbidden", "no_rights", dest, dest, dest, dest, "", addBot},
	{400, "chat_send_plain_forbidden", "no_rights", dest, dest, dest, dest, "", addBot},
	{400, "peer_id_invalid", "peer_id_invalid", dest, dest, dest, dest, "", unblock},
	{400, "topic_closed", "topic_closed", dest, dest, dest, dest, "", topic},
	{400, "topic_deleted", "topic_deleted", dest, dest, dest, dest, "", topic},
	{400, "message thread not found", "topic_not_found", dest, dest, dest, dest, "", topic + "; the General topic has none: leave it out"},

	{400, "can't parse entities", "bad_entities", payl, payl, payl, payl, "", ourContent},
	{400, "message is too long", "too_long", payl, payl, payl, payl, "", ourContent},
	{400, "text is too long", "too_long", payl, payl, payl, payl, "", ourContent},
	{400, "message text is empty", "empty", payl, payl, payl, payl, "", ourContent},
	{400, "text must be non-empty", "empty", payl, payl, payl, payl, "", ourContent},
	{400, "reply markup is too long", "buttons_too_long", payl, payl, payl, payl, delivery.PartButtons, ourButtons},
	{400, "button_url_invalid", "button_url", payl, payl, payl, payl, delivery.PartButtons, ourButtons},
	{400, "button_data_invalid", "button_data", payl, payl, payl, payl, delivery.PartButtons, ourButtons},
	{400, "inline keyboard button url", "button_url", payl, payl, payl, payl, delivery.PartButtons, ourButtons},
	{400, "wrong http url specified", "button_url", payl, payl, payl, payl, delivery.PartButtons, ourButtons},

	{403, "bot was blocked by the user", "blocked", dest, dest, dest, dest, "", "the person has blocked the bot: " + unblock},
	{403, "user is deactivated", "user_deactivated", dest, dest, dest, dest, "", "the person's Telegram account is gone: link another one"},
	{403, "bot was kicked from the", "kicked", dest, dest, dest, dest, "", addBot},
	{403, "bot is not a member of the", "not_a_member", dest, dest, dest, dest, "", addBot},
	{403, "the group chat was deleted", "chat_deleted", dest, dest, dest, dest, "", "{place} was deleted: set another chat_id in the file"},
	{403, "bot can't initiate conversation with a user", "not_started", dest, dest, dest, dest, "", unblock},
	{403, "peer_id_invalid", "not_started", dest, dest, dest, dest, "", unblock},
	{403, "the bot can't send messages to the bot", "is_a_bot", dest, dest, dest, dest, "", "{place} is a bot: link the account of a person"},

	{401, "", "unauthorized", acct, acct, acct, acct, "", "the bot's token is not valid any more: " + newToken},
	{404, "", "not_found", acct, acct, acct, acct, "", "Telegram does not know this bot: " + newToken + ", and check api_url"},
	{421, "", "unallowed_token", acct, acct, acct, acct, "", "this server does not serve the bot: check api_url and token in the file"},
	{302, "", "malformed_token", acct, acct, acct, acct, "", newToken}, // only with a way to core.telegram.org
	// Two who fetch updates are in each other's way; a send is not.
	{409, "", "conflict", later, later, later, later, "", "another program uses the bot's token to receive updates"},
	{429, "", "rate_limited", wait, wait, wait, wait, "", ""},

	// The server's own words that a message was made: a 500 is no proof of a failure.
	{500, "sent message was immediately deleted", "sent_and_deleted", doubt, doubt, doubt, doubt, "", "Telegram made the message in {place} and deleted it at once: look whether something there deletes what the bot writes"},
	{500, "restart", "restart", doubt, doubt, doubt, doubt, "", inDoubt},
	{500, "", "http_500", doubt, doubt, doubt, doubt, "", inDoubt},
	{502, "", "http_502", doubt, doubt, doubt, doubt, "", inDoubt},
	{503, "", "http_503", doubt, doubt, doubt, doubt, "", inDoubt},
	{504, "", "http_504", doubt, doubt, doubt, doubt, "", inDoubt},
}

// describe brings a description into the form that rows match.
func describe(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	for _, p := range []string{"bad request: ", "forbidden: ", "unauthorized: ", "conflict: ", "internal server error: "} {
		s = strings.TrimPrefix(s, p)
	}
	return s
}

func (r row) on(op delivery.Operation) verdict {
	switch op {
	case delivery.OpCreate:
		return r.create
	case delivery.OpEdit:
		return r.edit
	case delivery.OpReply:
		return r.reply
	}
	return r.look
}

// find is the row of an answer. Where there is none, listed is false and the row says what the code alone means: a 403 is
// about the place, another 4xx about the content, and the rest does not say what happened.
func find(code int, description string) (r row, listed bool) {
	for _, r := range rows {
		if r.code == code && strings.HasPrefix(description, r.prefix) {
			return r, true
		}
	}
	r = row{code: code, slug: strconv.Itoa(code), create: doubt, edit: doubt, reply: doubt, look: doubt, sentence: inDoubt}
	v := doubt
	switch {
	case code == http.StatusForbidden:
		v, r.slug, r.sentence = dest, "forbidden", addBot
	case code >= 400 && code < 500 && code != http.StatusRequestTimeout:
		v, r.sentence = payl, "Telegram refused the message with words that tocsin does not know"
	}
	r.create, r.edit, r.reply, r.look = v, v, v, v
	return r, false
}

// classify writes what an answer of Telegram's means for an operation into a result that has its evidence already. It is
// the one place where codes become outcomes.
func classify(res delivery.Result, op delivery.Operation, a answer, place string) delivery.Result {
	r, listed := find(a.code, a.description)
	if !listed && a.code == http.StatusBadRequest && a.migrateTo != 0 {
		r, _ = find(a.code, migrated) // the new id says it, whatever the words are
	}
	res.Outcome, res.Code, res.Reason = delivery.OutcomeFailed, r.slug, "telegram:"+r.slug
	res.Sentence, res.Unlisted = strings.ReplaceAll(r.sentence, "{place}", place), !listed
	v := r.on(op)
	if v == moved && a.migrateTo == 0 {
		v = dest // nobody says where to
	}
	switch v {
	case acct:
		res.Fault, res.Reason = delivery.FaultAccount, "account:"+r.slug
	case dest:
		res.Fault, res.Reason = delivery.FaultDestination, "destination:"+r.slug
	case payl:
		res.Fault, res.Reason, res.Refused = delivery.FaultPayload, "payload:"+r.slug, r.refused
	case gone:
		res.Fault = delivery.FaultGone
	case moved:
		res.Fault, res.Reason = delivery.FaultMoved, "destination:"+r.slug
	case wait:
		res.Fault, res.Reason, res.RetryAfter = delivery.FaultThrottled, r.slug, a.retryAfter
	case later:
		res.Fault = delivery.FaultTransient
	case same:
		res.Outcome, res.Fault, res.Reason, res.Sentence = delivery.OutcomeSent, delivery.FaultNone, "", ""
	default:
		res.Outcome, res.Fault = delivery.OutcomeUnknown, delivery.FaultNone
	}
	switch {
	case v == moved:
		res.MovedTo = strconv.FormatInt(a.migrateTo, 10)
		res.Sentence = "the group became a supergroup: set chat_id: " + res.MovedTo + " in the file"
	case !listed && v == payl:
		res.Reason = "telegram:" + r.slug
		res.Sentence += ": " + a.original
	}
	return res
}
