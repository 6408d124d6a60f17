package slack

import (
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// row is what one of Slack's codes means for a delivery.
type row struct {
	verdict  verdict
	sentence string // what a person should do; {place} is the address, {needed} the missing scope
}

type verdict int

const (
	account     verdict = iota + 1 // no effect; the credentials must be mended
	destination                    // no effect; the channel, user or URL must be mended
	payload                        // no effect; the content is refused for good
	throttled                      // no effect; wait
	later                          // no effect; try again after the backoff
	gone                           // no effect; what was to be edited or answered is not there, or closed to us
	doubt                          // may have had an effect
	same                           // what was wanted is there already
)

const (
	newToken   = "put a valid bot token of the Slack app into the file and restart the replicas"
	allowApp   = "an administrator of the workspace must allow the Slack app again"
	useBot     = "use the bot token (xoxb-...) of an app that is installed in this workspace"
	checkURL   = "check api_url of the notifier in the file"
	ourContent = "Slack refuses this content; it will not be sent again: please report it"
	slackWell  = "Slack could not say whether the message was posted"
)

// codes are the answers of chat.postMessage and chat.update.
var codes = map[string]row{
	"invalid_auth":                   {account, newToken + "; if the app limits its addresses, allow this machine's"},
	"not_authed":                     {account, newToken},
	"token_revoked":                  {account, "the token was revoked: reinstall the Slack app and " + newToken},
	"token_expired":                  {account, "the token has expired: " + newToken},
	"account_inactive":               {account, "the token belongs to an account or app that was removed: reinstall the Slack app and " + newToken},
	"not_allowed_token_type":         {account, useBot},
	"missing_scope":                  {account, "give the Slack app the scope {needed}, reinstall it, then send again"},
	"no_permission":                  {account, "give the Slack app the scope chat:write, reinstall it, then send again"},
	"access_denied":                  {account, allowApp},
	"accesslimited":                  {account, allowApp},
	"app_access_restricted":          {account, allowApp},
	"two_factor_setup_required":      {account, "the token's user must set up two-factor sign-in in Slack"},
	"enterprise_is_restricted":       {account, allowApp},
	"team_access_not_granted":        {account, "install the Slack app in this workspace of the organisation"},
	"team_not_found":                 {account, useBot},
	"is_bot":                         {account, useBot},
	"unknown_method":                 {account, checkURL},
	"method_deprecated":              {account, checkURL},
	"deprecated_endpoint":            {account, checkURL},
	"metadata_must_be_sent_from_app": {account, useBot},

	"channel_not_found":                     {destination, "{place} does not exist or is closed to @tocsin: check the id, or invite @tocsin to it, then send again"},
	"not_in_channel":                        {destination, "invite @tocsin to {place}, then send again"},
	"is_archived":                           {destination, "{place} is archived: unarchive it or choose another channel in the file, then send again"},
	"is_inactive":                           {destination, "{place} is frozen: choose another channel in the file, then send again"},
	"messages_tab_disabled":                 {destination, "switch on the Messages tab in the Slack app's App Home, then send again"},
	"user_not_found":                        {destination, "{place} is nobody in this workspace: link the account again, then send again"},
	"ekm_access_denied":                     {destination, "an administrator has suspended messages in {place}: ask them, then send again"},
	"restricted_action":                     {destination, "the workspace lets @tocsin not post in {place}: ask an administrator, then send again"},
	"restricted_action_read_only_channel":   {destination, "{place} is read-only: let @tocsin post there, then send again"},
	"restricted_action_thread_only_channel": {destination, "{place} takes replies only: choose another channel in the file, then send again"},
	"send_on_behalf_not_allowed":            {destination, "let @tocsin post in {place} under its own name, then send again"},
	"as_user_not_supported":                 {destination, "let @tocsin post in {place} under its own name, then send again"},

	"restricted_action_non_threadable_channel": {gone, "{place} has no threads"},
	"restricted_action_thread_locked":          {gone, "the thread in {place} is locked"},
	"cannot_reply_to_message":                  {gone, "the message in {place} cannot be replied to"},
	"thread_not_found":                         {gone, "the thread in {place} is not there any more"},
	"message_not_found":                        {gone, "the message in {place} is not there any more"},
	"cant_update_message":                      {gone, "the message in {place} was posted by another app and cannot be edited"},
	"edit_window_closed":                       {gone, "the workspace lets nobody edit messages that old"},

	"no_text":                           {payload, ourContent},
	"msg_too_long":                      {payload, ourContent},
	"msg_blocks_too_long":               {payload, ourContent},
	"invalid_blocks":                    {payload, ourContent},
	"invalid_blocks_format":             {payload, ourContent},
	"block_mismatch":                    {payload, ourContent},
	"invalid_attachments":               {payload, ourContent},
	"too_many_attachments":              {payload, ourContent},
	"attachment_payload_limit_exceeded": {payload, ourContent},
	"too_many_contact_cards":            {payload, ourContent},
	"markdown_text_conflict":            {payload, ourContent},
	"invalid_metadata_format":           {payload, ourContent},
	"invalid_metadata_schema":           {payload, ourContent},
	"metadata_too_large":                {payload, ourContent},
	"invalid_arguments":                 {payload, ourContent},
	"invalid_arg_name":                  {payload, ourContent},
	"invalid_array_arg":                 {payload, ourContent},
	"invalid_charset":                   {payload, ourContent},
	"invalid_form_data":                 {payload, ourContent},
	"invalid_post_type":                 {payload, ourContent},
	"missing_post_type":                 {payload, ourContent},
	"no_dual_broadcast_content_update":  {payload, ourContent},

	"ratelimited":  {throttled, ""},
	"rate_limited": {throttled, ""},

	"request_timeout":            {later, "Slack did not get the whole request"},
	"team_added_to_org":          {later, "the workspace is being moved into an organisation"},
	"org_login_required":         {later, "the workspace is being moved into an organisation"},
	"external_channel_migrating": {later, "the channel is being moved"},
	"message_limit_exceeded":     {later, "the workspace has used up its messages"},
	"streaming_state_conflict":   {later, "the message is being written to"},

	"internal_error":              {doubt, slackWell},
	"fatal_error":                 {doubt, slackWell},
	"service_unavailable":         {doubt, slackWell},
	"update_failed":               {doubt, slackWell},
	"duplicate_message_not_found": {doubt, slackWell},
	"duplicate_channel_not_found": {doubt, slackWell},

	"already_reacted": {same, ""},
	"no_reaction":     {same, ""},
}

// hookCodes are the answers of incoming webhooks that differ from codes or are not among them.
var hookCodes = map[string]row{
	"invalid_payload":                   {payload, ourContent},
	"invalid_token":                     {destination, "the webhook URL is not valid any more: make a new one in Slack and put it into the file"},
	"action_prohibited":                 {destination, "an administrator has restricted this webhook: ask them, or make a new one"},
	"posting_to_general_channel_denied": {destination, "the webhook may not post in this channel: ask an administrator, or make one for another channel"},
	"team_disabled":                     {destination, "the workspace is disabled"},
	"channel_not_found":                 {destination, "the webhook's channel does not exist any more: make a new webhook and put it into the file"},
	"channel_is_archived":               {destination, "the webhook's channel is archived: unarchive it, or make a new webhook"},
	"no_service":                        {destination, "the webhook was removed: make a new one in Slack and put it into the file"},
	"no_service_id":                     {destination, "the webhook URL is not complete: check webhook_url in the file"},
	"no_active_hooks":                   {destination, "the webhook is switched off: switch it on, or make a new one in Slack"},
	"no_team":                           {destination, "the webhook's workspace does not exist any more: make a new webhook"},
	"user_not_found":                    {payload, ourContent},
	"rollup_error":                      {doubt, slackWell},
}

// lookUp finds a code's row. Codes of Slack Connect come in families.
func lookUp(code string, tables ...map[string]row) (row, bool) {
	for _, t := range tables {
		if r, ok := t[code]; ok {
			return r, true
		}
	}
	if strings.HasPrefix(code, "slack_connect_") && strings.HasSuffix(code, "_blocked") {
		return row{destination, "the organisations that share {place} do not let @tocsin post there: ask an administrator"}, true
	}
	return row{}, false
}

// apply writes what a code means into a result that has its evidence already.
func (r row) apply(res delivery.Result, code, place, needed string) delivery.Result {
	if place == "" {
		place = "the channel"
	}
	if needed == "" {
		needed = "chat:write"
	}
	res.Code = code
	res.Outcome = delivery.OutcomeFailed
	res.Reason = "slack:" + code
	res.Error = "Slack answered " + code
	res.Sentence = strings.NewReplacer("{place}", place, "{needed}", needed).Replace(r.sentence)
	switch r.verdict {
	case account:
		res.Fault, res.Reason = delivery.FaultAccount, "account:"+code
	case destination:
		res.Fault, res.Reason = delivery.FaultDestination, "destination:"+code
	case payload:
		res.Fault, res.Reason = delivery.FaultPayload, "payload:"+code
	case throttled:
		res.Fault, res.Reason = delivery.FaultThrottled, "rate_limited"
	case later:
		res.Fault = delivery.FaultTransient
	case gone:
		res.Fault = delivery.FaultGone
	case doubt:
		res.Outcome, res.Fault = delivery.OutcomeUnknown, delivery.FaultNone
	case same:
		res.Outcome, res.Fault, res.Reason, res.Error = delivery.OutcomeSent, delivery.FaultNone, "", ""
	}
	return res
}
