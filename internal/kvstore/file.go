package kvstore

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/heftai/heft/internal/atomicfile"
)

const (
	pagesDir   = "pages"
	lockName   = "lock"
	secretName = "secret"
	suffix     = ".kv"
	magic      = "heftkv1\n"

	// A file is magic, ID, part, length, salt, code over these and the value, zeros up to headerBytes, value.
	saltAt      = len(magic) + sha256.Size + 4 + 8
	saltBytes   = 16
	signedBytes = saltAt + saltBytes
	codeBytes   = 16
	headerBytes = 128
	// block is what sizes are rounded up to, as file systems do.
	block = 4096
)

// sizeOf is what a value takes of the limit.
func sizeOf(value int64) int64 { return (headerBytes + value + block - 1) / block * block }

// path returns the file of a key.
func (s *Store) path(key Key) string {
	id := hex.EncodeToString(key.ID[:])
	return filepath.Join(s.dir, pagesDir, id[:2], id[2:]+"-"+strconv.Itoa(int(key.Part))+suffix)
}

// isPage reports whether a file of this name is a value.
func isPage(name string) bool {
	rest, ok := strings.CutSuffix(name, suffix)
	id, part, cut := strings.Cut(rest, "-")
	if _, err := strconv.Atoi(part); err != nil {
		return false
	}
	_, err := hex.DecodeString(id)
	return ok && cut && len(id) == 2*sha256.Size-2 && err == nil
}

func header(key Key, length int) (h [headerBytes]byte) {
	b := append(h[:0], magic...)
	b = append(b, key.ID[:]...)
	b = binary.LittleEndian.AppendUint32(b, uint32(key.Part))
	binary.LittleEndian.AppendUint64(b, uint64(length))
	return h
}

// sign returns the authentication code of a header and a value: AES-GCM's, under a key that the header,
// with its salt, and the secret give. It is some times faster than a hash.
func (s *Store) sign(h *[headerBytes]byte, value []byte) []byte {
	mac := hmac.New(sha256.New, s.secret[:])
	mac.Write([]byte("value\x00"))
	mac.Write(h[:signedBytes])
	cipherOf, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		panic(err) // of the length of the key
	}
	gcm, err := cipher.NewGCM(cipherOf)
	if err != nil {
		panic(err) // of the size of a block
	}
	var nonce [12]byte // the key is used once
	return gcm.Seal(nil, nonce[:], nil, value)
}

// Has reports whether there is a file for a key with a value of so many bytes. It does not read it.
func (s *Store) Has(key Key, length int) bool {
	info, err := os.Lstat(s.path(key))
	if err == nil && info.Mode().IsRegular() && info.Size() == int64(headerBytes+length) {
		return true
	}
	s.misses.Add(1)
	return false
}

// Get reads the value of a key into value, whose length it must have, and notes its use. It returns
// false, and leaves any bytes in value, if there is none or the file fails a check. Such a file is
// removed with a warning if it is a regular one, else ignored with a warning.
func (s *Store) Get(key Key, depth int, value []byte) bool {
	path := s.path(key)
	err := s.read(path, key, value)
	switch {
	case err == nil:
		s.hits.Add(1)
		s.readBytes.Add(int64(len(value)))
		s.use(path, int32(depth))
		return true
	case errors.Is(err, fs.ErrNotExist): // evicted meanwhile
		s.misses.Add(1)
		return false
	}
	s.damaged.Add(1)
	s.warnOnce("a file of the KV store is ignored, and its tokens are computed again", err)
	if info, e := os.Lstat(path); e == nil && info.Mode().IsRegular() {
		_ = os.Remove(path) // it would keep a good one out; else the next reader removes it
	}
	return false
}

// read reads and checks a file.
func (s *Store) read(path string, key Key, value []byte) error {
	f, err := openRegular(path)
	if err != nil {
		return err
	}
	defer f.Close()
	damaged := func(format string, args ...any) error {
		return fmt.Errorf("kvstore: %s: %s", path, fmt.Sprintf(format, args...))
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return damaged("not a regular file")
	case info.Size() != int64(headerBytes+len(value)):
		return damaged("got %d bytes, want %d", info.Size(), headerBytes+len(value))
	}
	var h [headerBytes]byte
	if _, err := io.ReadFull(f, h[:]); err != nil {
		return err
	}
	if _, err := io.ReadFull(f, value); err != nil {
		return err
	}
	want := header(key, len(value))
	if !bytes.Equal(h[:saltAt], want[:saltAt]) || !hmac.Equal(h[signedBytes:signedBytes+codeBytes], s.sign(&h, value)) {
		return damaged("the checksum is wrong")
	}
	return nil
}

// put writes a value under its final name. The lock is held.
func (s *Store) put(key Key, depth int32, value []byte) error {
	path := s.path(key)
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		return fmt.Errorf("kvstore: %s is not a folder", folder)
	}
	h := header(key, len(value))
	_, _ = rand.Read(h[saltAt:signedBytes]) // never fails
	copy(h[signedBytes:], s.sign(&h, value))
	err := atomicfile.Publish(path, 0o600, func(w io.Writer) error {
		if _, err := w.Write(h[:]); err != nil {
			return err
		}
		half := len(value) / 2
		if _, err := w.Write(value[:half]); err != nil {
			return err
		}
		s.options.step("half written")
		_, err := w.Write(value[half:])
		s.options.step("written")
		return err
	})
	if err == nil {
		s.use(path, depth)
	}
	return err
}

// use notes that a file is used now.
func (s *Store) use(path string, depth int32) {
	at := time.Unix(s.options.now().Unix(), 999_999_999-int64(depth))
	_ = os.Chtimes(path, at, at) // it is evicted earlier
}
