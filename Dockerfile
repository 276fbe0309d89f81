# docker build -t gpudemand .
# docker run --rm -v "$PWD:/work" gpudemand report jobs.csv --out report
# docker run --rm -p 8888:8888 -v "$PWD:/work" --entrypoint jupyter gpudemand lab --ip 0.0.0.0 --no-browser
FROM python:3.12-slim
COPY . /src
RUN pip install --no-cache-dir --constraint /src/constraints.txt "/src[lab]" && rm -r /src
RUN useradd --create-home planner
USER planner
WORKDIR /work
ENTRYPOINT ["gpudemand"]
