package slacktest

import (
	"regexp"
	"strings"
	"testing"
)

func TestMrkdwn(t *testing.T) {
	t.Parallel()
	who := func(id string) string { return "name of " + id }
	for src, want := range map[string]string{
		"*b* _i_ ~s~ `c*d*`":       "<strong>b</strong> <em>i</em> <s>s</s> <code>c*d*</code>",
		"*b _i_*":                  "<strong>b <em>i</em></strong>",
		"a*b*c 2 * 3 * 4 a_b_c":    "a*b*c 2 * 3 * 4 a_b_c",
		"*open\n*":                 "*open\n*",
		"&lt;b&gt; &amp;amp; &":    "&lt;b&gt; &amp;amp; &amp;",
		"<b>":                      "&lt;b&gt;",
		"<https://x.example>":      `<a href="https://x.example" rel="noopener noreferrer" target="_blank">https://x.example</a>`,
		"<javascript:alert(1)|x>":  "&lt;javascript:alert(1)|x&gt;",
		"<@U1> <@U1|ana> <!here>":  `<span class="mention">@name of U1</span> <span class="mention">@ana</span> <span class="mention">@here</span>`,
		"<#C1|ops>":                `<span class="mention">#ops</span>`,
		"<!date^1^{date}|12:02>":   "12:02",
		"&gt; q1\n> q2\nrest":      "<blockquote>q1\nq2</blockquote>rest",
		"```\n*x* <b>\n```after":   "<pre>*x* &lt;b&gt;</pre>after",
		"```never closed *b*":      "```never closed <strong>b</strong>",
		":fire: :nosuch: 12:30:45": "🔥 :nosuch: 12:30:45",
	} {
		if got := string(mrkdwn(src, who)); got != want {
			t.Errorf("%q\n got %s\nwant %s", src, got, want)
		}
	}
	if s := strings.Repeat("*a ", 20_000); len(mrkdwn(s, who)) != len(s) {
		t.Error("marks without an end must stay as they are")
	}
}

var ours = regexp.MustCompile(`</?(strong|em|s|code|pre|blockquote|span|a)>|<span class="mention">|<a href="(https?://|mailto:)[^"<>]*" rel="noopener noreferrer" target="_blank">`)

func FuzzMrkdwnIsNeverMarkup(f *testing.F) {
	for _, s := range []string{"*<b>* `<i>`", "<https://x.example/\"onclick=1|<b>>", "```<script>```", "<@U1|<i>>", "&gt;<s>&lt;&amp;", "<mailto:a@b\"x|y>", "<!date^1|<>>", ":fire:<:x:>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		out := string(mrkdwn(src, func(id string) string { return id }))
		if rest := ours.ReplaceAllString(out, ""); strings.ContainsAny(rest, "<>\"'") {
			t.Errorf("%q draws markup that is not ours: %q", src, rest)
		}
	})
}
