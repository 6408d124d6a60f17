package app

import (
	"os"
	"testing"

	"github.com/tocsin-oncall/tocsin/pkg/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }
