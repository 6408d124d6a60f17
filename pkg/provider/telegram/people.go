package telegram

import (
	"context"

	tgbotapi "github.com/go-telegram-bot-api/telegram-bot-api/v5"

	"github.com/tocsin-oncall/tocsin/pkg/provider"
)

// Reach looks whether the bot has a chat with a person. Whether they have blocked the bot since is known only as far as Telegram
// tells it without a message.
func (p *Provider) Reach(ctx context.Context, address string) provider.Reach {
	ctx, cancel := context.WithTimeout(ctx, p.notifier.Timeout)
	defer cancel()
	rec, res := p.look(ctx, "getChat", tgbotapi.Params{"chat_id": address})
	return provider.ReachOf(rec.Clean(res))
}
