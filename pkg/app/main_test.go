package app

import (
	"fmt"
	"os"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

// chaosDir is where the program is built that some tests start as a process.
var chaosDir string

func TestMain(m *testing.M) {
	var err error
	if chaosDir, err = os.MkdirTemp("", "tocsin-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := storetest.Main(m)
	_ = os.RemoveAll(chaosDir)
	os.Exit(code)
}
