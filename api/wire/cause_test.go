package wire

import (
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestTheLogHasTheCauseOfAnError: an answer that pointed to the log, such as that of a --lora-dir that was removed, had a
// line there without the cause.
func TestTheLogHasTheCauseOfAnError(t *testing.T) {
	was := slog.Default()
	defer slog.SetDefault(was)
	cause := errors.New("open /adapters: no such file or directory")
	own := &Error{Kind: Internal, Message: "The server's --lora-dir cannot be read: see the log of the server.", Err: cause}
	for _, err := range []error{own, cause} {
		var log strings.Builder
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		PrepareError(httptest.NewRecorder(), own, err)
		if n := strings.Count(log.String(), "/adapters"); n != 1 {
			t.Errorf("%v: the log has the cause %d times: %s", err, n, log.String())
		}
	}
}
