package telegram

import (
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

type verdict int

const (
	account     verdict = iota + 1 // no effect; the token must be mended
	destination                    // no effect; chat, topic or membership must be mended
	payload                        // no effect; the content is refused for good
	gone                           // no effect; what was to be edited or answered is not there
	later                          // no effect; try again after the backoff
	doubt                          // may have had an effect
	same                           // what was wanted is there already
)

// row is what one of Telegram's answers means. Its codes are declared unstable, so an answer is matched on the code
// together with the beginning of the description, in lower case and without "Bad Request: " and the like.
type row struct {
	code     int
	prefix   string // "" takes every description of the code
	slug     string // short name for reasons
	verdict  verdict
	sentence string // what a person should do; {place} is the address
}

const (
	addBot     = "add the bot to {place} and let it write there, then send again"
	unblock    = "the person must open the chat with the bot and press Start, then send again"
	newToken   = "copy the bot's token from @BotFather into the file and restart the replicas"
	ourContent = "Telegram refuses this content; it will not be sent again: please report it"
	anew       = "the message in {place} cannot be edited any more"
	topic      = "open the topic again, or set another message_thread_id in the file, then send again"
)

// rows are searched in order.
var rows = []row{
	{400, "message is not modified", "not_modified", same, ""},
	{400, "message_not_modified", "not_modified", same, ""},

	{400, "message to edit not found", "message_not_found", gone, anew},
	{400, "message can't be edited", "message_not_editable", gone, anew},
	{400, "message_id_invalid", "message_not_found", gone, anew},
	{400, "there is no text in the message to edit", "message_without_text", gone, anew},
	{400, "message to be replied not found", "parent_not_found", gone, "the message in {place} that this answers is not there any more"},
	{400, "replied message not found", "parent_not_found", gone, "the message in {place} that this answers is not there any more"},
	{400, "reply message not found", "parent_not_found", gone, "the message in {place} that this answers is not there any more"},

	{400, "chat not found", "chat_not_found", destination, "{place} is unknown to the bot: check the chat id, or " + addBot},
	{400, "private chat not found", "chat_not_found", destination, unblock},
	{400, "chat_id is empty", "chat_id_empty", destination, "set chat_id in the file, then send again"},
	{400, "group chat was upgraded to a supergroup chat", "migrated", destination, "the group became a supergroup: set its new chat_id in the file, then send again"},
	{400, "not enough rights to send text messages to the chat", "no_rights", destination, addBot},
	{400, "have no write access to the chat", "no_rights", destination, addBot},
	{400, "need administrator rights in the channel chat", "no_rights", destination, "make the bot an administrator of {place}, then send again"},
	{400, "chat_write_forbidden", "no_rights", destination, addBot},
	{400, "peer_id_invalid", "peer_id_invalid", destination, unblock},
	{400, "topic_closed", "topic_closed", destination, topic},
	{400, "topic_deleted", "topic_deleted", destination, topic},
	{400, "message thread not found", "topic_not_found", destination, topic},

	{400, "can't parse entities", "bad_entities", payload, ourContent},
	{400, "message is too long", "too_long", payload, ourContent},
	{400, "text is too long", "too_long", payload, ourContent},
	{400, "message text is empty", "empty", payload, ourContent},
	{400, "text must be non-empty", "empty", payload, ourContent},
	{400, "reply markup is too long", "buttons_too_long", payload, ourContent},
	{400, "button_url_invalid", "button_url", payload, ourContent},
	{400, "button_data_invalid", "button_data", payload, ourContent},
	{400, "inline keyboard button url", "button_url", payload, ourContent},
	{400, "wrong http url specified", "button_url", payload, ourContent},

	{403, "bot was blocked by the user", "blocked", destination, "the person has blocked the bot: " + unblock},
	{403, "user is deactivated", "user_deactivated", destination, "the person's Telegram account is gone: link another one"},
	{403, "bot was kicked from the", "kicked", destination, addBot},
	{403, "bot is not a member of the", "not_a_member", destination, addBot},
	{403, "the group chat was deleted", "chat_deleted", destination, "{place} was deleted: set another chat_id in the file"},
	{403, "bot can't initiate conversation with a user", "not_started", destination, unblock},
	{403, "the bot can't send messages to the bot", "is_a_bot", destination, "{place} is a bot: link the account of a person"},
	{403, "", "forbidden", destination, addBot},

	{401, "", "unauthorized", account, "the bot's token is not valid any more: " + newToken},
	{404, "", "not_found", account, "Telegram does not know this bot: " + newToken + ", and check api_url"},
	{421, "", "unallowed_token", account, "this server does not serve the bot: check api_url and token in the file"},
	{409, "", "conflict", later, "another program uses the bot's token to receive updates"},
}

// describe brings a description into the form that rows match.
func describe(s string) string {
	s = strings.ToLower(strings.TrimSpace(s))
	for _, p := range []string{"bad request: ", "forbidden: ", "unauthorized: ", "conflict: ", "internal server error: "} {
		s = strings.TrimPrefix(s, p)
	}
	return s
}

// lookUp finds what an answer means.
func lookUp(code int, description string) (row, bool) {
	for _, r := range rows {
		if r.code == code && strings.HasPrefix(description, r.prefix) {
			return r, true
		}
	}
	return row{}, false
}

// apply writes what an answer means into a result that has its evidence already.
func (r row) apply(res delivery.Result, place string) delivery.Result {
	res.Code = r.slug
	res.Outcome = delivery.OutcomeFailed
	res.Reason = "telegram:" + r.slug
	res.Sentence = strings.ReplaceAll(r.sentence, "{place}", place)
	switch r.verdict {
	case account:
		res.Fault, res.Reason = delivery.FaultAccount, "account:"+r.slug
	case destination:
		res.Fault, res.Reason = delivery.FaultDestination, "destination:"+r.slug
	case payload:
		res.Fault, res.Reason = delivery.FaultPayload, "payload:"+r.slug
	case gone:
		res.Fault = delivery.FaultGone
	case later:
		res.Fault = delivery.FaultTransient
	case doubt:
		res.Outcome, res.Fault = delivery.OutcomeUnknown, delivery.FaultNone
	case same:
		res.Outcome, res.Fault, res.Reason = delivery.OutcomeSent, delivery.FaultNone, ""
	}
	return res
}
