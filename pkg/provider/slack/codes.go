package slack

import (
	"strings"

	"github.com/tocsin-oncall/tocsin/pkg/delivery"
)

// operation is what a call wants from Slack. The same code can mean one thing to one and another thing to another.
type operation string

const (
	opPost   operation = "post"   // chat.postMessage, a message of its own
	opReply  operation = "reply"  // chat.postMessage with thread_ts
	opEdit   operation = "edit"   // chat.update
	opDelete operation = "delete" // chat.delete
	opOpen   operation = "open"   // conversations.open
	opRead   operation = "read"   // conversations.history, conversations.replies, conversations.info
	opPerson operation = "person" // users.lookupByEmail, users.info
	opGroup  operation = "group"  // usergroups.users.update
	opReact  operation = "react"  // reactions.add, reactions.remove
	opAuth   operation = "auth"   // auth.test
	opHook   operation = "hook"   // an incoming webhook
)

// operations lists them all.
var operations = []operation{opPost, opReply, opEdit, opDelete, opOpen, opRead, opPerson, opGroup, opReact, opAuth, opHook}

// makes says that repeating the operation makes a second thing. All others can be repeated without harm.
func (o operation) makes() bool { return o == opPost || o == opReply || o == opHook }

// row is what one of Slack's codes means.
type row struct {
	verdict  verdict
	sentence string // what a person should do; {place} is the address, {needed} the missing scope
	part     delivery.Part
	tested   bool // account: auth.test is refused with it too, so that its ok shows that it is mended
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
	noMark     = "Slack does not take the mark by which the message could be found again: check that the token is the bot token of an app"
	ourCall    = "Slack refuses what tocsin asked for; please report it"
	slackWell  = "Slack could not say whether the message was posted"
	editAgain  = "Slack could not say whether the message was changed; it is changed once more"
	askAgain   = "Slack could not answer; it is asked again"
	newScope   = "give the Slack app the scope {needed}, reinstall it, then send again"
	linkAgain  = "{place} is nobody in this workspace: link the account again, then send again"
	notUs      = "the message in {place} was posted by another app and cannot be changed"
)

// codes are Slack's codes, with what they mean to every operation that has no row of its own in differing. They are those
// that docs.slack.dev lists for the methods above, and those that were seen besides.
var codes = map[string]row{
	// The token and the app.
	"invalid_auth":              {verdict: account, sentence: newToken + "; if the app limits its addresses, allow this machine's", tested: true},
	"not_authed":                {verdict: account, sentence: newToken, tested: true},
	"token_revoked":             {verdict: account, sentence: "the token was revoked: reinstall the Slack app and " + newToken, tested: true},
	"token_expired":             {verdict: account, sentence: "the token has expired: " + newToken, tested: true},
	"account_inactive":          {verdict: account, sentence: "the token belongs to an account or app that was removed: reinstall the Slack app and " + newToken, tested: true},
	"two_factor_setup_required": {verdict: account, sentence: "the token's user must set up two-factor sign-in in Slack", tested: true},
	"missing_scope":             {verdict: account, sentence: newScope},
	"not_allowed_token_type":    {verdict: account, sentence: useBot},
	"no_permission":             {verdict: account, sentence: "give the Slack app the scope chat:write, reinstall it"},
	"access_denied":             {verdict: account, sentence: allowApp},
	"accesslimited":             {verdict: account, sentence: allowApp},
	"app_access_restricted":     {verdict: account, sentence: allowApp},
	"enterprise_is_restricted":  {verdict: account, sentence: allowApp},
	"team_access_not_granted":   {verdict: account, sentence: "install the Slack app in this workspace of the organisation"},
	"team_not_found":            {verdict: account, sentence: useBot},
	"is_bot":                    {verdict: account, sentence: useBot},
	"unknown_method":            {verdict: account, sentence: checkURL},
	"method_deprecated":         {verdict: account, sentence: checkURL},
	"deprecated_endpoint":       {verdict: account, sentence: checkURL},

	// The channel and the person.
	"channel_not_found":                     {verdict: destination, sentence: "{place} does not exist or is closed to @tocsin: check the id, or invite @tocsin to it, then send again"},
	"not_in_channel":                        {verdict: destination, sentence: "invite @tocsin to {place}, then send again"},
	"is_archived":                           {verdict: destination, sentence: "{place} is archived: unarchive it or choose another channel in the file, then send again"},
	"is_inactive":                           {verdict: destination, sentence: "{place} is frozen: choose another channel in the file, then send again"},
	"messages_tab_disabled":                 {verdict: destination, sentence: "switch on the Messages tab in the Slack app's App Home, then send again"},
	"ekm_access_denied":                     {verdict: destination, sentence: "an administrator has suspended messages in {place}: ask them, then send again"},
	"restricted_action":                     {verdict: destination, sentence: "the workspace lets @tocsin not post in {place}: ask an administrator, then send again"},
	"restricted_action_read_only_channel":   {verdict: destination, sentence: "{place} is read-only: let @tocsin post there, then send again"},
	"restricted_action_thread_only_channel": {verdict: destination, sentence: "{place} takes replies only: choose another channel in the file, then send again"},
	"send_on_behalf_not_allowed":            {verdict: destination, sentence: "let @tocsin post in {place} under its own name, then send again"},
	"as_user_not_supported":                 {verdict: destination, sentence: "let @tocsin post in {place} under its own name, then send again"},
	"user_not_found":                        {verdict: destination, sentence: linkAgain},
	"users_not_found":                       {verdict: destination, sentence: linkAgain},
	"user_not_visible":                      {verdict: destination, sentence: "{place} is hidden from the Slack app: ask an administrator, or link another account, then send again"},
	"user_disabled":                         {verdict: destination, sentence: "{place} is deactivated in Slack: link another account, then send again"},
	"user_is_bot":                           {verdict: destination, sentence: "{place} is an app, not a person: link the person's account, then send again"},
	"cannot_dm_bot":                         {verdict: destination, sentence: "{place} is an app, not a person: link the person's account, then send again"},
	"invalid_user_combination":              {verdict: destination, sentence: "{place} cannot be written to by this app: link another account, then send again"},
	"user_not_in_channel":                   {verdict: destination, sentence: "invite the person to {place}, then send again"},

	// The thread and the message.
	"restricted_action_non_threadable_channel": {verdict: gone, sentence: "{place} has no threads"},
	"restricted_action_thread_locked":          {verdict: gone, sentence: "the thread in {place} is locked"},
	"thread_locked":                            {verdict: gone, sentence: "the thread in {place} is locked"},
	"cannot_reply_to_message":                  {verdict: gone, sentence: "the message in {place} cannot be replied to"},
	"thread_not_found":                         {verdict: gone, sentence: "the thread in {place} is not there any more"},
	"message_not_found":                        {verdict: gone, sentence: "the message in {place} is not there any more"},
	"cant_update_message":                      {verdict: gone, sentence: notUs},
	"edit_window_closed":                       {verdict: gone, sentence: "the workspace lets nobody edit messages that old"},
	"cant_delete_message":                      {verdict: gone, sentence: notUs},
	"compliance_exports_prevent_deletion":      {verdict: gone, sentence: "the workspace keeps every message: none can be deleted"},
	"no_item_specified":                        {verdict: gone, sentence: "it is not known which message this belongs to"},
	"bad_timestamp":                            {verdict: gone, sentence: "it is not known which message this belongs to"},

	// The content.
	"no_text":                           {verdict: payload, sentence: ourContent},
	"msg_too_long":                      {verdict: payload, sentence: ourContent},
	"msg_blocks_too_long":               {verdict: payload, sentence: ourContent},
	"invalid_blocks":                    {verdict: payload, sentence: ourContent},
	"invalid_blocks_format":             {verdict: payload, sentence: ourContent},
	"block_mismatch":                    {verdict: payload, sentence: ourContent},
	"invalid_attachments":               {verdict: payload, sentence: ourContent},
	"too_many_attachments":              {verdict: payload, sentence: ourContent},
	"attachment_payload_limit_exceeded": {verdict: payload, sentence: ourContent},
	"too_many_contact_cards":            {verdict: payload, sentence: ourContent},
	"markdown_text_conflict":            {verdict: payload, sentence: ourContent},
	"no_dual_broadcast_content_update":  {verdict: payload, sentence: ourContent},
	"cant_broadcast_message":            {verdict: payload, sentence: ourContent},
	"invalid_metadata_format":           {verdict: payload, sentence: noMark, part: delivery.PartMetadata},
	"invalid_metadata_schema":           {verdict: payload, sentence: noMark, part: delivery.PartMetadata},
	"metadata_too_large":                {verdict: payload, sentence: noMark, part: delivery.PartMetadata},
	"metadata_must_be_sent_from_app":    {verdict: payload, sentence: noMark, part: delivery.PartMetadata},
	"invalid_name":                      {verdict: payload, sentence: ourContent},
	"too_many_emoji":                    {verdict: payload, sentence: "the message has as many kinds of reactions as Slack allows"},
	"too_many_reactions":                {verdict: payload, sentence: "the message has as many reactions of this app as Slack allows"},
	"not_reactable":                     {verdict: payload, sentence: ourContent},
	"file_not_found":                    {verdict: payload, sentence: ourContent},
	"file_comment_not_found":            {verdict: payload, sentence: ourContent},

	// The request.
	"invalid_arguments":                     {verdict: payload, sentence: ourContent},
	"invalid_arg_name":                      {verdict: payload, sentence: ourContent},
	"invalid_array_arg":                     {verdict: payload, sentence: ourContent},
	"invalid_charset":                       {verdict: payload, sentence: ourContent},
	"invalid_form_data":                     {verdict: payload, sentence: ourContent},
	"invalid_json":                          {verdict: payload, sentence: ourContent},
	"json_not_object":                       {verdict: payload, sentence: ourContent},
	"invalid_post_type":                     {verdict: payload, sentence: ourContent},
	"missing_post_type":                     {verdict: payload, sentence: ourContent},
	"invalid_cursor":                        {verdict: later, sentence: "the place in the history was lost: it is read from the start again"},
	"invalid_ts_latest":                     {verdict: payload, sentence: ourCall},
	"invalid_ts_oldest":                     {verdict: payload, sentence: ourCall},
	"invalid_metadata_keys":                 {verdict: payload, sentence: ourCall},
	"pagination_not_available":              {verdict: destination, sentence: "this workspace does not let apps read a whole history"},
	"users_list_not_supplied":               {verdict: payload, sentence: ourCall},
	"not_enough_users":                      {verdict: payload, sentence: ourCall},
	"too_many_users":                        {verdict: payload, sentence: ourCall},
	"method_not_supported_for_channel_type": {verdict: destination, sentence: "{place} is a kind of conversation that cannot be used so: choose another one, then send again"},

	// Time heals.
	"ratelimited":                {verdict: throttled},
	"rate_limited":               {verdict: throttled},
	"request_timeout":            {verdict: later, sentence: "Slack did not get the whole request"},
	"team_added_to_org":          {verdict: later, sentence: "the workspace is being moved into an organisation"},
	"org_login_required":         {verdict: later, sentence: "the workspace is being moved into an organisation"},
	"external_channel_migrating": {verdict: later, sentence: "the channel is being moved"},
	"message_limit_exceeded":     {verdict: later, sentence: "the workspace has used up its messages"},
	"streaming_state_conflict":   {verdict: later, sentence: "the message is being written to"},

	// Slack documents of the first two that a part may have succeeded; of the others, nothing.
	"internal_error":              {verdict: doubt, sentence: slackWell},
	"fatal_error":                 {verdict: doubt, sentence: slackWell},
	"service_unavailable":         {verdict: doubt, sentence: slackWell},
	"update_failed":               {verdict: doubt, sentence: slackWell},
	"duplicate_message_not_found": {verdict: doubt, sentence: slackWell},
	"duplicate_channel_not_found": {verdict: doubt, sentence: slackWell},
	"rollup_error":                {verdict: doubt, sentence: slackWell},

	// To those who asked for it, it is as it should be; from anyone else's call it makes no sense.
	"already_reacted": {verdict: doubt, sentence: slackWell},
	"no_reaction":     {verdict: doubt, sentence: slackWell},
	"already_open":    {verdict: doubt, sentence: slackWell},
}

// differing are the codes that mean something else to one operation.
var differing = map[operation]map[string]row{
	opPost: {
		// A message of its own stands under nothing that could be gone.
		"restricted_action_non_threadable_channel": {verdict: payload, sentence: ourContent},
		"restricted_action_thread_locked":          {verdict: payload, sentence: ourContent},
		"thread_locked":                            {verdict: payload, sentence: ourContent},
		"cannot_reply_to_message":                  {verdict: payload, sentence: ourContent},
		"thread_not_found":                         {verdict: payload, sentence: ourContent},
		"message_not_found":                        {verdict: payload, sentence: ourContent},
		"cant_update_message":                      {verdict: payload, sentence: ourContent},
		"edit_window_closed":                       {verdict: payload, sentence: ourContent},
		"cant_delete_message":                      {verdict: payload, sentence: ourContent},
		"compliance_exports_prevent_deletion":      {verdict: payload, sentence: ourContent},
		"no_item_specified":                        {verdict: payload, sentence: ourContent},
		"bad_timestamp":                            {verdict: payload, sentence: ourContent},
	},
	opEdit: {
		"internal_error":              {verdict: doubt, sentence: editAgain},
		"fatal_error":                 {verdict: doubt, sentence: editAgain},
		"service_unavailable":         {verdict: doubt, sentence: editAgain},
		"update_failed":               {verdict: doubt, sentence: editAgain},
		"duplicate_message_not_found": {verdict: doubt, sentence: editAgain},
		"duplicate_channel_not_found": {verdict: doubt, sentence: editAgain},
		"rollup_error":                {verdict: doubt, sentence: editAgain},
	},
	opDelete: {
		"message_not_found": {verdict: same},
	},
	opReact: {
		"already_reacted":   {verdict: same},
		"no_reaction":       {verdict: same},
		"message_not_found": {verdict: payload, sentence: "the message in {place} is not there any more"},
		"thread_locked":     {verdict: payload, sentence: "the thread in {place} is locked"},
		"missing_scope":     {verdict: account, sentence: "give the Slack app the scope {needed} and reinstall it"},
	},
	opOpen: {
		"already_open":  {verdict: same},
		"missing_scope": {verdict: account, sentence: "give the Slack app the scope {needed} and reinstall it: without it the messages of a person cannot be looked through"},
	},
	opPerson: {
		"missing_scope": {verdict: account, sentence: "give the Slack app the scope {needed} and reinstall it: without it people cannot be found by their address"},
	},
	opGroup: {
		"no_such_subteam":            {verdict: destination, sentence: "the user group {place} does not exist: check user_group in the file; its id begins with S"},
		"subteam_max_users_exceeded": {verdict: payload, sentence: "the user group {place} has as many members as Slack allows"},
		"permission_denied":          {verdict: destination, sentence: "the workspace lets @tocsin not change the user group {place}: an administrator must let members or this app manage user groups"},
		"plan_upgrade_required":      {verdict: destination, sentence: "the workspace's plan has no user groups: remove user_group from the file"},
		"no_users_provided":          {verdict: payload, sentence: ourCall},
		"invalid_users":              {verdict: destination, sentence: "one of those on call has no account that can be in the user group {place}: link another account"},
		"user_not_found":             {verdict: destination, sentence: "one of those on call has no account that can be in the user group {place}: link another account"},
		"missing_scope":              {verdict: account, sentence: "give the Slack app the scope {needed} and reinstall it: without it the user group {place} stays as it is"},
		"internal_error":             {verdict: later, sentence: askAgain},
		"fatal_error":                {verdict: later, sentence: askAgain},
		"service_unavailable":        {verdict: later, sentence: askAgain},
	},
	opRead: {
		"missing_scope":     {verdict: account, sentence: "give the Slack app the scope {needed} and reinstall it: without it nobody can look whether a message in doubt has arrived"},
		"not_in_channel":    {verdict: destination, sentence: "invite @tocsin to {place}: only a member can look whether a message in doubt has arrived"},
		"channel_not_found": {verdict: destination, sentence: "{place} does not exist or is closed to @tocsin: check the id, or invite @tocsin to it, so that it can look whether a message in doubt has arrived"},
		"no_permission":     {verdict: account, sentence: "invite @tocsin to {place}, and give the Slack app the scope {needed}: without them nobody can look whether a message in doubt has arrived"},
		"is_inactive":       {verdict: destination, sentence: "{place} is frozen: what is in it cannot be looked through"},
	},
	opHook: {
		"invalid_payload":                   {verdict: payload, sentence: ourContent},
		"user_not_found":                    {verdict: payload, sentence: ourContent},
		"invalid_token":                     {verdict: destination, sentence: "the webhook URL is not valid any more: make a new one in Slack and put it into the file"},
		"action_prohibited":                 {verdict: destination, sentence: "an administrator has restricted this webhook: ask them, or make a new one"},
		"posting_to_general_channel_denied": {verdict: destination, sentence: "the webhook may not post in this channel: ask an administrator, or make one for another channel"},
		"team_disabled":                     {verdict: destination, sentence: "the workspace is disabled"},
		"channel_not_found":                 {verdict: destination, sentence: "the webhook's channel does not exist any more: make a new webhook and put it into the file"},
		"channel_is_archived":               {verdict: destination, sentence: "the webhook's channel is archived: unarchive it, or make a new webhook"},
		"is_archived":                       {verdict: destination, sentence: "the webhook's channel is archived: unarchive it, or make a new webhook"},
		"no_service":                        {verdict: destination, sentence: "the webhook was removed: make a new one in Slack and put it into the file"},
		"no_service_id":                     {verdict: destination, sentence: "the webhook URL is not complete: check webhook_url in the file"},
		"no_active_hooks":                   {verdict: destination, sentence: "the webhook is switched off: switch it on, or make a new one in Slack"},
		"no_team":                           {verdict: destination, sentence: "the webhook's workspace does not exist any more: make a new webhook"},
	},
}

// scopeOf is the scope that an operation needs, where Slack does not name it.
var scopeOf = map[operation]string{
	opOpen: "im:write", opRead: "channels:history", opPerson: "users:read.email", opGroup: "usergroups:write", opReact: "reactions:write",
}

// classify is the only place that says what a code means to an operation. False: no table knows it.
func classify(op operation, code string) (row, bool) {
	r, ok := differing[op][code]
	if !ok {
		r, ok = codes[code]
	}
	if !ok && strings.HasPrefix(code, "slack_connect_") && strings.HasSuffix(code, "_blocked") { // a family that grows
		r, ok = row{verdict: destination, sentence: "the organisations that share {place} do not let @tocsin post there: ask an administrator"}, true
	}
	switch {
	case op == opHook && r.verdict == account:
		r.verdict = destination // a webhook has no token: what its URL may not do, a new URL must
	case op == opHook && r.verdict == gone:
		r.verdict = payload // it can only make messages
	case !op.makes() && op != opEdit && r.verdict == doubt:
		r.sentence = askAgain
	}
	return r, ok
}

// apply writes what a code means into a result that has its evidence already.
func (r row) apply(res delivery.Result, op operation, code, place, needed string) delivery.Result {
	if place == "" {
		place = "the channel"
	}
	if op == opHook {
		place = "the webhook's channel"
	}
	if needed == "" {
		needed = scopeOf[op]
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
		res.Fault, res.Reason, res.Refused = delivery.FaultPayload, "payload:"+code, r.part
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
