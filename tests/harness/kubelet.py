# kubelet.py -- what Kubernetes makes of a manifest of scripts/kubernetes, as files that a shell script runs.
# SPDX-License-Identifier: MIT
#
#   kubelet.py MANIFEST FOLDER ROOT     writes FOLDER/pod-I/{hostname,env,argv} for each pod; texts end with a NUL
#
# Of the Job controller and the training operator it sets the variables that they document; $(NAME) in commands is
# replaced from the container's environment, as the kubelet does it. Paths below the places of volumes begin with ROOT, where
# these are made. Wrong names and kinds are errors.
import os
import re
import sys

import yaml


def expand(text, env):
    return re.sub(r"\$\((\w+)\)", lambda m: env.get(m.group(1), m.group(0)), text)


def write(folder, name, texts):
    with open(os.path.join(folder, name), "w") as out:
        out.writelines(text + "\0" for text in texts)


def make_secret(path, mode):
    if not os.path.exists(path):
        with open(path, "w") as out:
            out.write(os.urandom(32).hex())
        os.chmod(path, mode)


def write_pod(folder, index, hostname, template, name, env):
    spec = template["spec"]
    container = [c for c in spec["containers"] if c["name"] == name][0]
    # The container's own variables come first: nothing here may depend on what is added later.
    env = {**{e["name"]: e["value"] for e in container.get("env", [])}, **env}
    volumes = {v["name"]: v for v in spec["volumes"]}
    argv = [expand(word, env) for word in container["command"] + container["args"]]
    for mount in container["volumeMounts"]:
        path, secret = mount["mountPath"], volumes[mount["name"]].get("secret")
        there = os.path.join(sys.argv[3], path[1:])
        os.makedirs(there, exist_ok=True)
        if secret:
            make_secret(os.path.join(there, "secret"), secret["defaultMode"])
        place = re.compile("(^|=)" + re.escape(path) + "(?=/|$)")
        argv = [place.sub(r"\1" + there, word) for word in argv]
        env = {key: place.sub(r"\1" + there, value) for key, value in env.items()}
    folder = os.path.join(folder, "pod-%d" % index)
    os.makedirs(folder)
    write(folder, "hostname", [hostname])
    write(folder, "env", ["%s=%s" % pair for pair in env.items()])
    write(folder, "argv", argv)


def indexed_job(job, services, folder):
    spec, name = job["spec"], job["metadata"]["name"]
    template = spec["template"]
    service = [s for s in services if s["metadata"]["name"] == template["spec"]["subdomain"]][0]
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": name}
    if "podFailurePolicy" in spec:
        assert template["spec"]["restartPolicy"] == "Never"
        for rule in spec["podFailurePolicy"]["rules"]:
            codes = rule.get("onExitCodes", {"containerName": template["spec"]["containers"][0]["name"]})
            assert codes["containerName"] == template["spec"]["containers"][0]["name"]
    for i in range(spec["completions"]):
        host = "%s-%d.%s" % (name, i, service["metadata"]["name"])
        write_pod(folder, i, host, template, "train", {"JOB_COMPLETION_INDEX": str(i)})


def pytorch_job(job, folder):
    spec, name = job["spec"], job["metadata"]["name"]
    kinds = spec["pytorchReplicaSpecs"]
    pods = [("master", i, kinds["Master"]) for i in range(kinds["Master"]["replicas"])]
    pods += [("worker", i, kinds["Worker"]) for i in range(kinds["Worker"]["replicas"])]
    ranks = spec["nprocPerNode"]
    for i, (kind, number, replica) in enumerate(pods):
        env = {
            "PYTHONUNBUFFERED": "1",
            "MASTER_ADDR": name + "-master-0",
            "MASTER_PORT": "23456",
            "WORLD_SIZE": str(len(pods) * int(ranks)),
            "RANK": str(i),
            "PET_NNODES": str(len(pods)),
            "PET_NODE_RANK": str(i),
            "PET_NPROC_PER_NODE": ranks,
            "PET_MASTER_ADDR": name + "-master-0",
            "PET_MASTER_PORT": "23456",
        }
        write_pod(folder, i, "%s-%s-%d" % (name, kind, number), replica["template"], "pytorch", env)


def main():
    with open(sys.argv[1]) as manifest:
        parts = list(yaml.safe_load_all(manifest))
    job = parts[-1]
    if job["kind"] == "Job":
        indexed_job(job, parts[:-1], sys.argv[2])
    else:
        assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
        pytorch_job(job, sys.argv[2])


main()
