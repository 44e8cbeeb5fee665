//go:build !linux

package hostmem

import (
	"errors"
	"os"
)

func openDirect(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func readDirect(*os.File, []byte, int64) (int, error) { return 0, errors.ErrUnsupported }

func openDirectWrite(string) (*os.File, error) { return nil, errors.ErrUnsupported }

func writeDirect(*os.File, []byte, int64) (int, error) { return 0, errors.ErrUnsupported }

func refusesDirect(err error) bool { return errors.Is(err, errors.ErrUnsupported) }

// DropCache does nothing here.
func DropCache(*os.File, int64, int64) {}

// ReadNoAhead does nothing here.
func ReadNoAhead(*os.File) {}
