package keys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heftai/heft/api/wire"
)

const secret = "sk-very-secret"

// write writes a file of keys that has a time of its own.
func write(t *testing.T, path, text string, age time.Duration) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, text string) *Set {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys.yaml")
	write(t, path, text, time.Hour)
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestErrorsOfTheFileNameTheEntryAndNoKey: a wrong entry is an error that an operator can act on and that may be
// logged.
func TestErrorsOfTheFileNameTheEntryAndNoKey(t *testing.T) {
	for text, want := range map[string]string{
		"":            "no key",
		"[]":          "no key",
		"- {name: a}": "key or sha256",
		"- {name: a, key: " + secret + ", sha256: 00}":                       "key or sha256",
		"- {name: 'a b', key: " + secret + "}":                               "name",
		"- {key: " + secret + "}":                                            "name",
		"- {name: a, sha256: " + secret + "}":                                "sha256",
		"- {name: a, key: " + secret + "}\n- {name: a, key: x}":              "twice",
		"- {name: a, key: " + secret + "}\n- {name: b, key: " + secret + "}": "same key",
		"- {name: a, key: " + secret + ", requests_per_minute: -1}":          "requests_per_minute",
		"- {name: a, key: " + secret + ", tokens_per_minute: many}":          "a value",
		"- {name: a, key: " + secret + ", limit: 3}":                         "limit",
		"- {name: a, key: '" + secret + "\u00e9'}":                           "ASCII",
		"- {name: a, key: " + secret + ", models: ['']}":                     "models",
		"name: " + secret: "want a list",
		"- " + secret:     "want a list",
		"{{" + secret:     "YAML",
	} {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		write(t, path, text, 0)
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v, want %q and no key", text, err, want)
		}
	}
}

// TestLimitsOfAKey: each limit rejects with the time to wait, and lets requests pass again then.
func TestLimitsOfAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "- {name: a, key: ka, max_concurrent_requests: 2}\n- {name: b, key: kb, requests_per_minute: 3}\n- {name: c, key: kc, tokens_per_minute: 60}\n- {name: d, sha256: 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae}")
		if k := s.Find([]string{"no", "foo"}); k == nil || k.Client().Name != "d" {
			t.Errorf("a key by its hash: %v", k)
		}
		if s.Find([]string{"k", "", "kab"}) != nil {
			t.Error("a wrong key was found")
		}
		limited := func(k *Key, after time.Duration, says string) {
			t.Helper()
			_, err := k.Enter()
			var e *wire.Error
			if !errors.As(err, &e) || e.Kind != wire.RateLimited || e.RetryAfter != after || !strings.Contains(e.Message, says) {
				t.Errorf("%v, want %q after %v", err, says, after)
			}
		}
		enter := func(k *Key) func() {
			t.Helper()
			leave, err := k.Enter()
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		a := s.Find([]string{"ka"})
		leave := enter(a)
		enter(a)
		limited(a, time.Second, "2 requests at once")
		leave()
		leave() // once counts
		enter(a)
		limited(a, time.Second, "2 requests at once")

		b := s.Find([]string{"kb"})
		for range 3 {
			enter(b)()
		}
		limited(b, 20*time.Second, "3 requests per minute")
		time.Sleep(20 * time.Second)
		enter(b)()
		limited(b, 20*time.Second, "3 requests per minute")

		c := s.Find([]string{"kc"})
		enter(c)()
		c.Client().Spent(50, 39) // 29 more than there are
		limited(c, 30*time.Second, "60 tokens per minute")
		time.Sleep(30 * time.Second)
		enter(c)()
		if u := s.Usage()[2]; u.Name != "c" || u.PromptTokens != 50 || u.Completion != 39 || u.Requests != 2 || u.Rejected != 1 || u.Running != 0 {
			t.Errorf("usage %+v", u)
		}
	})
}

// TestAReloadKeepsWhatWasUsed: new keys and limits hold at once, a broken file changes nothing, and a key that is
// read again has no fresh minute.
func TestAReloadKeepsWhatWasUsed(t *testing.T) {
	s := open(t, "- {name: a, key: old, requests_per_minute: 1}")
	if _, err := s.Find([]string{"old"}).Enter(); err != nil {
		t.Fatal(err)
	}
	write(t, s.path, "- {name: a, key: new, requests_per_minute: 1}", time.Minute)
	if err := s.Reload(); err != nil || s.Find([]string{"old"}) != nil {
		t.Fatal(err, "the old key still works")
	}
	if _, err := s.Find([]string{"new"}).Enter(); err == nil {
		t.Error("a reload gave a fresh minute")
	}
	write(t, s.path, "- nonsense", 0)
	if err := s.Reload(); err == nil || s.Find([]string{"new"}) == nil || s.Len() != 1 {
		t.Errorf("%v; a broken file removed the keys", err)
	}
}

// TestAFileThatChangesIsReadAgain: Watch finds a change, also of a file that was broken meanwhile.
func TestAFileThatChangesIsReadAgain(t *testing.T) {
	s := open(t, "- {name: a, key: old}")
	synctest.Test(t, func(t *testing.T) {
		go s.Watch(t.Context(), time.Second)
		write(t, s.path, "- nonsense", 30*time.Minute)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.Find([]string{"old"}) == nil {
			t.Error("a broken file removed the key")
		}
		write(t, s.path, "- {name: a, key: new}", 20*time.Minute)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if s.Find([]string{"new"}) == nil || s.Find([]string{"old"}) != nil {
			t.Error("the file was not read again")
		}
	})
}

// TestARemovedFileOfKeysIsLogged: the keys of a file that was removed stayed valid, and the log did not say so. An error is
// logged once, not with each check.
func TestARemovedFileOfKeysIsLogged(t *testing.T) {
	s := open(t, "- {name: a, key: old}")
	if err := os.Remove(s.path); err != nil {
		t.Fatal(err)
	}
	if !s.changed() || !errors.Is(s.Reload(), fs.ErrNotExist) || s.Find([]string{"old"}) == nil {
		t.Error("want an error for the removed file, and the key as it was")
	}
	if s.changed() {
		t.Error("the removed file counts as changed again")
	}
	write(t, s.path, "- {name: a, key: old}", 0)
	if !s.changed() || s.Reload() != nil {
		t.Error("want the file read when it is back")
	}
}

// TestAFileOfKeysThatIsNoListSaysWhatItIs: its error had the type of a Go struct.
func TestAFileOfKeysThatIsNoListSaysWhatItIs(t *testing.T) {
	for _, text := range []string{"name: alice\nkey: SECRET\n", "- alice\n", "5\n"} {
		_, err := parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), "want a list such as") || strings.Contains(err.Error(), "SECRET\n") {
			t.Errorf("%q: got %v, want an error that shows a list", text, err)
		}
	}
}

// TestLimitsOutlastAClockThatIsSet: a clock that is set ten hours forward gives a key one minute's use, one that is set back
// takes nothing. Set back, it locked a key out for ten hours where times had no monotonic part.
func TestLimitsOutlastAClockThatIsSet(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := &Set{now: func() time.Time { return now }, usage: map[string]*usage{}}
	k := s.key(entry{Name: "a", Requests: 2})
	use := func(want int) {
		t.Helper()
		for i := range want + 1 {
			leave, err := k.Enter()
			if (err == nil) != (i < want) {
				t.Errorf("request %d at %v: %v", i, now, err)
			}
			if err == nil {
				leave()
			}
			var own *wire.Error
			if errors.As(err, &own) && own.RetryAfter > 31*time.Second {
				t.Errorf("at %v the key waits %v", now, own.RetryAfter)
			}
		}
	}
	use(2)
	now = now.Add(10 * time.Hour)
	use(2)
	now = now.Add(-20 * time.Hour)
	use(0)
	now = now.Add(time.Minute)
	use(2)
	clock := open(t, "- {name: a, key: "+secret+"}").now
	if at := clock().String(); !strings.Contains(at, " m=") {
		t.Errorf("the times of limits have no monotonic part: %s", at)
	}
}
