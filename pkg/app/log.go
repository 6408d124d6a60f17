package app

import (
	"io"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tocsin-oncall/tocsin/pkg/redact"
)

// NewLog makes a logger of JSON lines on w. Whatever the secrets of set are at the moment of writing, they leave as
// ${NAME}, wherever in the line they stand.
func NewLog(w io.Writer, set *atomic.Pointer[redact.Set]) *zap.Logger {
	c := zap.NewProductionEncoderConfig()
	c.TimeKey, c.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	c.MessageKey, c.LevelKey = "message", "level"
	c.EncodeDuration = zapcore.StringDurationEncoder
	core := zapcore.NewCore(zapcore.NewJSONEncoder(c), zapcore.Lock(zapcore.AddSync(&redacting{to: w, set: set})), zap.InfoLevel)
	return zap.New(core)
}

// redacting takes the secrets out of each line as a whole, so that no field can be forgotten.
type redacting struct {
	to  io.Writer
	set *atomic.Pointer[redact.Set]
}

func (r *redacting) Write(line []byte) (int, error) {
	out := line
	if set := r.set.Load(); set != nil {
		out = set.Bytes(line)
	}
	if _, err := r.to.Write(out); err != nil {
		return 0, err
	}
	return len(line), nil
}
