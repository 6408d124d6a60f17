// Package deploy_test holds the deployment files to what they promise, and to the binary that they start.
package deploy_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"

	"github.com/tocsin-oncall/tocsin/pkg/config"
)

// environment fills every ${NAME} of the sample file and of docker-compose.yml.
var environment = map[string]string{
	"POSTGRES_PASSWORD":       "postgrespassword",
	"TOCSIN_DATABASE_URL":     "postgres://tocsin:postgrespassword@127.0.0.1:5432/tocsin",
	"TOCSIN_TOKEN_SHA256":     strings.Repeat("0123456789abcdef", 4),
	"SLACK_TOKEN":             "xoxb-sample",
	"SLACK_SIGNING_SECRET":    "slack-signing-secret",
	"TELEGRAM_TOKEN":          "123:sample",
	"TELEGRAM_WEBHOOK_SECRET": "telegram-webhook-secret",
}

func lookup(name string) (string, bool) {
	v, ok := environment[name]
	return v, ok
}

func sample(t *testing.T) *config.File {
	t.Helper()
	f, _, err := config.Load("tocsin.yaml", lookup)
	if err != nil {
		t.Fatalf("the sample file has errors:\n%v", err)
	}
	return f
}

func compose(t *testing.T) *types.Project {
	t.Helper()
	var env []string
	for k, v := range environment {
		if k != "TOCSIN_DATABASE_URL" { // compose makes it of its own parts
			env = append(env, k+"="+v)
		}
	}
	o, err := cli.NewProjectOptions([]string{"../docker-compose.yml"}, cli.WithWorkingDirectory(".."), cli.WithEnv(env))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestSampleFileIsRightAndWarnsOfNothing(t *testing.T) {
	t.Parallel()
	if f := sample(t); len(f.Warnings) > 0 {
		t.Errorf("check warns: %q", f.Warnings)
	}
}

func TestComposeStartsADatabaseAMigrationAndTwoReplicas(t *testing.T) {
	t.Parallel()
	p := compose(t)
	names := p.ServiceNames()
	slices.Sort(names)
	if want := []string{"migrate", "postgres", "tocsin-1", "tocsin-2"}; !slices.Equal(names, want) {
		t.Fatalf("services are %q, want %q", names, want)
	}
	db := p.Services["postgres"]
	if db.HealthCheck == nil || !slices.Contains(db.HealthCheck.Test, "pg_isready") {
		t.Error("postgres has no health check that asks pg_isready")
	}
	if !slices.ContainsFunc(db.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Type == "volume" && v.Target == "/var/lib/postgresql/data"
	}) {
		t.Error("the database's data is in no volume: it would go with the container")
	}
	if on := p.Services["migrate"].DependsOn["postgres"]; on.Condition != types.ServiceConditionHealthy {
		t.Errorf("migrate waits for postgres as %q", on.Condition)
	}
	grace := sample(t).Server.ShutdownGrace
	for _, name := range []string{"tocsin-1", "tocsin-2"} {
		s := p.Services[name]
		if on := s.DependsOn["migrate"]; on.Condition != types.ServiceConditionCompletedSuccessfully {
			t.Errorf("%s waits for migrate as %q", name, on.Condition)
		}
		if on := s.DependsOn["postgres"]; on.Condition != types.ServiceConditionHealthy {
			t.Errorf("%s waits for postgres as %q", name, on.Condition)
		}
		if s.StopGracePeriod == nil || time.Duration(*s.StopGracePeriod) <= grace {
			t.Errorf("%s is stopped after %v, and its own grace is %s", name, s.StopGracePeriod, grace)
		}
		if s.Hostname != name {
			t.Errorf("%s calls itself %q: attempts name their worker", name, s.Hostname)
		}
		if url := s.Environment["TOCSIN_DATABASE_URL"]; url == nil || !strings.Contains(*url, "@postgres:5432/") {
			t.Errorf("%s does not go to the database of this file", name)
		}
	}
}

func TestComposePublishesOnLoopbackOnlyAndEachPortOnce(t *testing.T) {
	t.Parallel()
	taken := map[string]string{}
	published := 0
	for name, s := range compose(t).Services {
		if s.NetworkMode == "host" {
			t.Errorf("%s is on the host's network", name)
		}
		for _, port := range s.Ports {
			published++
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes %d on %q, want 127.0.0.1", name, port.Target, port.HostIP)
			}
			if by := taken[port.Published]; by != "" {
				t.Errorf("%s and %s both publish %s", by, name, port.Published)
			}
			taken[port.Published] = name
		}
	}
	if published != 4 {
		t.Errorf("%d ports are published, want API and metrics of two replicas", published)
	}
}

func TestComposeMountsTheSampleFileAndBuildsTheDockerfile(t *testing.T) {
	t.Parallel()
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range compose(t).Services {
		if name == "postgres" {
			continue
		}
		if s.Build == nil || s.Build.Dockerfile != "deploy/Dockerfile" || filepath.Join(here, "..") != s.Build.Context {
			t.Errorf("%s is not built from deploy/Dockerfile: %+v", name, s.Build)
		}
		if len(s.Volumes) != 1 || s.Volumes[0].Source != filepath.Join(here, "tocsin.yaml") || !s.Volumes[0].ReadOnly {
			t.Errorf("%s does not mount deploy/tocsin.yaml read-only: %+v", name, s.Volumes)
			continue
		}
		if !slices.Contains(s.Command, s.Volumes[0].Target) {
			t.Errorf("%s mounts the file at %s, and its command is %q", name, s.Volumes[0].Target, s.Command)
		}
		for _, v := range names(t, "tocsin.yaml") {
			if s.Environment[v] == nil {
				t.Errorf("%s does not get %s, which the file needs", name, v)
			}
		}
	}
}

func TestSecretsComeFromTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"tocsin.yaml", "../docker-compose.yml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			line, _, _ = strings.Cut(line, "#")
			for _, m := range secret.FindAllStringSubmatch(line, -1) {
				if !strings.HasPrefix(m[2], "${") {
					t.Errorf("%s: %q is written out, want ${NAME}", file, m[0])
				}
			}
		}
	}
}

var secret = regexp.MustCompile(`(?i)(token|secret|password|sha256): +"?([^\s"]+)`)

var variable = regexp.MustCompile(`\$\{([A-Z0-9_]+)\}`)

// names lists the ${NAME}s of a file.
func names(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range variable.FindAllSubmatch(text, -1) {
		out = append(out, string(m[1]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// manifest is as much of a Kubernetes object as the tests look at.
type manifest struct {
	Kind     string `yaml:"kind"`
	Metadata struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	StringData map[string]string `yaml:"stringData"`
	Spec       struct {
		Replicas     int              `yaml:"replicas"`
		MinAvailable int              `yaml:"minAvailable"`
		Selector     map[string]any   `yaml:"selector"`
		Ports        []map[string]any `yaml:"ports"`
		Template     struct {
			Spec pod `yaml:"spec"`
		} `yaml:"template"`
	} `yaml:"spec"`
}

type pod struct {
	Grace           int            `yaml:"terminationGracePeriodSeconds"`
	SecurityContext map[string]any `yaml:"securityContext"`
	InitContainers  []container    `yaml:"initContainers"`
	Containers      []container    `yaml:"containers"`
	Volumes         []struct {
		Name      string `yaml:"name"`
		ConfigMap struct {
			Name string `yaml:"name"`
		} `yaml:"configMap"`
	} `yaml:"volumes"`
}

type container struct {
	Name    string   `yaml:"name"`
	Image   string   `yaml:"image"`
	Args    []string `yaml:"args"`
	EnvFrom []struct {
		SecretRef struct {
			Name string `yaml:"name"`
		} `yaml:"secretRef"`
	} `yaml:"envFrom"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
	Ports []struct {
		Name string `yaml:"name"`
		Port int    `yaml:"containerPort"`
	} `yaml:"ports"`
	SecurityContext struct {
		Escalation *bool `yaml:"allowPrivilegeEscalation"`
		ReadOnly   bool  `yaml:"readOnlyRootFilesystem"`
		Caps       struct {
			Drop []string `yaml:"drop"`
		} `yaml:"capabilities"`
	} `yaml:"securityContext"`
	Liveness  probe `yaml:"livenessProbe"`
	Readiness probe `yaml:"readinessProbe"`
	Lifecycle struct {
		PreStop struct {
			Sleep struct {
				Seconds int `yaml:"seconds"`
			} `yaml:"sleep"`
		} `yaml:"preStop"`
	} `yaml:"lifecycle"`
}

type probe struct {
	HTTPGet struct {
		Path string `yaml:"path"`
		Port string `yaml:"port"`
	} `yaml:"httpGet"`
}

// manifests reads every object of kubernetes/, by kind and name.
func manifests(t *testing.T) map[string]manifest {
	t.Helper()
	files, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("kubernetes/ has %q (%v)", files, err)
	}
	out := map[string]manifest{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, doc := range strings.Split(string(text), "\n---\n") {
			var m manifest
			if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out[m.Kind+"/"+m.Metadata.Name] = m
		}
	}
	return out
}

func TestKubernetesDeployment(t *testing.T) {
	t.Parallel()
	all := manifests(t)
	d, ok := all["Deployment/tocsin"]
	if !ok {
		t.Fatal("no Deployment tocsin")
	}
	if d.Spec.Replicas < 2 || all["PodDisruptionBudget/tocsin"].Spec.MinAvailable < 1 {
		t.Error("there are to be two replicas, and never none")
	}
	pod := d.Spec.Template.Spec
	if pod.SecurityContext["runAsNonRoot"] != true {
		t.Error("the pod may run as root")
	}
	if len(pod.Containers) != 1 || len(pod.InitContainers) != 1 {
		t.Fatalf("%d containers and %d init containers, want serve and migrate", len(pod.Containers), len(pod.InitContainers))
	}
	serve, migrate := pod.Containers[0], pod.InitContainers[0]
	if !slices.Contains(serve.Args, "serve") || !slices.Contains(migrate.Args, "migrate") || serve.Image != migrate.Image {
		t.Errorf("the pod runs %s %q after %s %q", serve.Image, serve.Args, migrate.Image, migrate.Args)
	}
	pause := time.Duration(serve.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	if own, pods := sample(t).Server.ShutdownGrace+pause, time.Duration(pod.Grace)*time.Second; pods <= own {
		t.Errorf("the pod is killed after %s, and stopping may take %s", pods, own)
	}
	if serve.Liveness.HTTPGet.Path != "/healthz" || serve.Readiness.HTTPGet.Path != "/readyz" {
		t.Errorf("probes ask %q and %q", serve.Liveness.HTTPGet.Path, serve.Readiness.HTTPGet.Path)
	}
	for _, c := range []container{serve, migrate} {
		sc := c.SecurityContext
		if sc.Escalation == nil || *sc.Escalation || !sc.ReadOnly || !slices.Equal(sc.Caps.Drop, []string{"ALL"}) {
			t.Errorf("container %s has rights it does not need: %+v", c.Name, sc)
		}
		if len(c.VolumeMounts) != 1 || !slices.Contains(c.Args, c.VolumeMounts[0].MountPath+"/tocsin.yaml") {
			t.Errorf("container %s does not find its file: %q, mounted %+v", c.Name, c.Args, c.VolumeMounts)
		}
		if len(c.EnvFrom) != 1 || all["Secret/"+c.EnvFrom[0].SecretRef.Name].StringData == nil {
			t.Errorf("container %s has no Secret of which there is an example", c.Name)
			continue
		}
		for _, v := range names(t, "tocsin.yaml") {
			if _, ok := all["Secret/"+c.EnvFrom[0].SecretRef.Name].StringData[v]; !ok {
				t.Errorf("the example Secret lacks %s, which the file needs", v)
			}
		}
	}
	ports := map[string]int{}
	for _, p := range serve.Ports {
		ports[p.Name] = p.Port
	}
	f := sample(t)
	for name, listen := range map[string]string{"http": f.Server.Listen, "metrics": f.Server.MetricsListen} {
		if want := listen[strings.LastIndex(listen, ":")+1:]; want == "" || want != jsonText(t, ports[name]) {
			t.Errorf("port %s is %d, and the file listens on %s", name, ports[name], listen)
		}
	}
	for _, name := range []string{"Service/tocsin", "Service/tocsin-metrics"} {
		s, ok := all[name]
		if !ok || len(s.Spec.Ports) != 1 || ports[s.Spec.Ports[0]["targetPort"].(string)] == 0 {
			t.Errorf("%s leads to no port of the pod: %+v", name, s.Spec.Ports)
		}
	}
}

func jsonText(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestKustomizationNamesWhatIsThere(t *testing.T) {
	t.Parallel()
	type kustomization struct {
		Resources []string `yaml:"resources"`
		Generator []struct {
			Name  string   `yaml:"name"`
			Files []string `yaml:"files"`
		} `yaml:"configMapGenerator"`
	}
	read := func(file string) (k kustomization) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, &k); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, r := range k.Resources {
			if _, err := os.Stat(filepath.Join(filepath.Dir(file), r)); err != nil {
				t.Errorf("%s names %s: %v", file, r, err)
			}
			if strings.Contains(r, "secret") {
				t.Errorf("%s applies the example Secret", file)
			}
		}
		return k
	}
	read("kubernetes/kustomization.yaml")
	top := read("kustomization.yaml")
	volume := manifests(t)["Deployment/tocsin"].Spec.Template.Spec.Volumes
	if len(top.Generator) != 1 || len(volume) != 1 || top.Generator[0].Name != volume[0].ConfigMap.Name ||
		!slices.Equal(top.Generator[0].Files, []string{"tocsin.yaml"}) {
		t.Errorf("the pod mounts %+v, and what is made is %+v", volume, top.Generator)
	}
}
