# polyhead on a GPU: docker build -t polyhead . && docker run --gpus all -v "$PWD/runs:/polyhead/runs" polyhead run mofa-demo
# The devel image brings the compilers that Triton and the native CPU kernels need at run time.
ARG CUDA=12.8.1
FROM nvidia/cuda:${CUDA}-cudnn-devel-ubuntu24.04

ENV DEBIAN_FRONTEND=noninteractive PIP_NO_CACHE_DIR=1 PATH=/opt/polyhead/bin:$PATH
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-dev python3-venv g++ \
    && rm -rf /var/lib/apt/lists/* \
    && python3 -m venv /opt/polyhead

# torch first and alone: it changes least and weighs most
ARG TORCH=2.11.0
RUN pip install "torch==${TORCH}"

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
COPY studies studies
RUN pip install ".[studies,ot]" && rm -rf /src

# as nobody in particular: runs, downloads and compiled kernels go where the caller mounts them
ENV POLYHEAD_CACHE=/polyhead/cache HF_HOME=/polyhead/huggingface
RUN useradd --create-home polyhead && mkdir -p /polyhead && chown polyhead /polyhead
USER polyhead
WORKDIR /polyhead
ENTRYPOINT ["polyhead"]
CMD ["--help"]
